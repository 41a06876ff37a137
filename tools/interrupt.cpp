#include "tools/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <iterator>

namespace heddle::tools {
namespace {

struct WatchedSignal {
  int number;
  const char* name;
};
constexpr WatchedSignal kWatched[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};

volatile std::sig_atomic_t first_signal = 0;
struct sigaction previous[std::size(kWatched)];

extern "C" void remember_or_leave(int number) {
  // No destructors: a checkpoint that is being written stays aside and is never taken for a whole one.
  if (first_signal != 0) ::_exit(128 + number);
  first_signal = number;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember_or_leave;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(kWatched); ++i) {
    ::sigaction(kWatched[i].number, nullptr, &previous[i]);
    // nohup and shells without job control start a program with signals that it is to ignore.
    if (previous[i].sa_handler != SIG_IGN) ::sigaction(kWatched[i].number, &action, nullptr);
  }
}

InterruptWatch::~InterruptWatch() {
  for (std::size_t i = 0; i < std::size(kWatched); ++i) ::sigaction(kWatched[i].number, &previous[i], nullptr);
}

int InterruptWatch::signal() const noexcept { return first_signal; }

const char* InterruptWatch::signal_name(int signal) noexcept {
  for (const WatchedSignal& watched : kWatched) {
    if (watched.number == signal) return watched.name;
  }
  return "no signal";
}

}  // namespace heddle::tools
