// SIGINT, SIGTERM and SIGHUP (a closed terminal) as a request to stop: the first one is remembered, a second one ends
// the process at once. A signal that the parent told this process to ignore stays ignored.
#pragma once

#include <chrono>

namespace heddle::tools {

// Replaces the handling of these signals while it lives. One at a time in a process.
class InterruptWatch {
 public:
  // A second signal within echo_time of the first is taken for the same request: launchers pass a signal on that the
  // terminal has sent as well, and send their own when another rank stops.
  explicit InterruptWatch(std::chrono::milliseconds echo_time = {});
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  // Number of the first signal since construction; 0 if none came.
  int signal() const noexcept;
  bool requested() const noexcept { return signal() != 0; }
  // "SIGINT", "SIGTERM" or "SIGHUP".
  const char* signal_name() const noexcept { return signal_name(signal()); }
  // What a shell reports for a process ended by the signal: 128 + its number.
  int exit_code() const noexcept { return exit_code(signal()); }

  // The same for a signal that another rank has got.
  static const char* signal_name(int signal) noexcept;
  static int exit_code(int signal) noexcept { return 128 + signal; }
};

}  // namespace heddle::tools
