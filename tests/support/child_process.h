// Runs a piece of a test in a forked child, to measure its time and memory, to limit it, or to kill it.
// Catch2 assertions must not be used in the child: it returns text, and the test looks at that.
#pragma once

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include "tests/support/instrumented.h"

namespace heddle::test {

struct ChildResult {
  std::string text;                     // what fn returned, or "exception: ..." with the message
  double seconds = 0;                   // in fn
  std::int64_t peak_growth_nbytes = 0;  // of resident memory during fn
  int status = 0;                       // as from waitpid
  bool ended_well() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

// A line of /proc/self/status in bytes.
inline std::int64_t resident_nbytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != key) continue;
    std::int64_t kib = 0;
    status >> kib;
    return kib * 1024;
  }
  return 0;
}

inline ChildResult run_in_child(const std::function<std::string()>& fn) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork");
  if (pid == 0) {
    ::close(ends[0]);
    // Give back what the parent freed, or the child would take its memory from there and seem to need none; then start
    // the kernel's peak anew.
    ::malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << 5;
    const std::int64_t before = resident_nbytes("VmRSS:");
    const auto begin = std::chrono::steady_clock::now();
    std::string text;
    try {
      text = fn();
    } catch (const std::exception& error) {
      text = std::string("exception: ") + error.what();
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    text = std::to_string(time.count()) + "\n" + std::to_string(resident_nbytes("VmHWM:") - before) + "\n" + text;
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(ends[1], text.data() + done, text.size() - done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string all;
  char chunk[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR);) {
    if (n > 0) all.append(chunk, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  ChildResult result;
  while (::waitpid(pid, &result.status, 0) < 0 && errno == EINTR) {
  }
  const auto first = all.find('\n');
  const auto second = first == std::string::npos ? first : all.find('\n', first + 1);
  if (second == std::string::npos) return result;
  result.seconds = std::stod(all.substr(0, first));
  result.peak_growth_nbytes = std::stoll(all.substr(first + 1, second - first - 1));
  result.text = all.substr(second + 1);
  return result;
}

}  // namespace heddle::test
