// Runs a program as a user would: arguments, environment, output into pipes or a terminal, signals, a time limit.
// Single-threaded; output is read while a function of this class waits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

enum class OutputKind {
  pipes,     // standard output and error in a pipe each
  terminal,  // both in one pseudo-terminal
  closed,    // standard output closed, standard error in a pipe
};

struct ProcessOptions {
  std::vector<std::string> arguments;  // without the program's name
  // Changes to this process's environment; an empty value removes the variable.
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::string folder = {};  // to start in; empty: this process's
  OutputKind output = OutputKind::pipes;
  int columns = 80;                   // of the terminal
  long max_file_nbytes = -1;          // RLIMIT_FSIZE; negative: none
  std::chrono::seconds timeout{120};  // then the process is killed
};

struct ProcessResult {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;      // that ended it
  bool timed_out = false;
  double seconds = 0.0;
  std::string out;  // of a terminal: everything
  std::string err;
};

class Process {
 public:
  // Starts the program at this path. Throws: std::runtime_error.
  Process(const std::string& program, ProcessOptions options);
  // Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send_signal(int number) const;
  // Waits until standard output contains the text; false if the process ended or the time limit came first.
  bool wait_for_output(const std::string& text);
  // Waits until it has a handler for the signal; false if it ended or the time limit came first.
  bool wait_for_handler(int number);
  // From now on nobody reads standard output.
  void stop_reading();
  // Waits for the end.
  ProcessResult wait();

 private:
  using Clock = std::chrono::steady_clock;
  // Reads what there is; false when both ends are closed.
  bool pump();
  bool out_of_time() const { return Clock::now() > deadline_; }

  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  bool reaped_ = false;
  Clock::time_point begin_;
  Clock::time_point deadline_;
  ProcessResult result_;
};

inline ProcessResult run_process(const std::string& program, ProcessOptions options) {
  return Process(program, std::move(options)).wait();
}

}  // namespace heddle::test
