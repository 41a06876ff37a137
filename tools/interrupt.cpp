#include "tools/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <csignal>

namespace heddle::tools {
namespace {

volatile std::sig_atomic_t first_signal = 0;
struct sigaction previous_int, previous_term;

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
  ::sigaction(SIGINT, &action, &previous_int);
  ::sigaction(SIGTERM, &action, &previous_term);
}

InterruptWatch::~InterruptWatch() {
  ::sigaction(SIGINT, &previous_int, nullptr);
  ::sigaction(SIGTERM, &previous_term, nullptr);
}

int InterruptWatch::signal() const noexcept { return first_signal; }
const char* InterruptWatch::signal_name() const noexcept { return first_signal == SIGINT ? "SIGINT" : "SIGTERM"; }

}  // namespace heddle::tools
