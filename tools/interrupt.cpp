#include "tools/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <iterator>

namespace heddle::tools {
namespace {

struct WatchedSignal {
  int number;
  const char* name;
};
constexpr WatchedSignal kWatched[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};

volatile std::sig_atomic_t first_signal = 0;
// In milliseconds of the monotonic clock: when the first one came, and for how long a second one is its echo.
std::atomic<std::int64_t> first_time{0}, tolerated{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "signal handlers must not wait");
struct sigaction previous[std::size(kWatched)];

std::int64_t milliseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

extern "C" void remember_or_leave(int number) {
  if (first_signal == 0) {
    first_time = milliseconds_now();
    first_signal = number;
  } else if (milliseconds_now() - first_time >= tolerated) {
    // No destructors: a checkpoint that is being written stays aside and is never taken for a whole one.
    ::_exit(128 + number);
  }
}

}  // namespace

InterruptWatch::InterruptWatch(std::chrono::milliseconds echo_time) {
  first_signal = 0;
  tolerated = echo_time.count();
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
