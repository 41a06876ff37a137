#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace heddle::test {
namespace {

struct Ends {
  int read = -1;
  int write = -1;
};

Ends make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  return {fds[0], fds[1]};
}

Ends make_terminal(int columns) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns);
  size.ws_row = 24;
  Ends ends;
  if (::openpty(&ends.read, &ends.write, nullptr, nullptr, &size) != 0) throw std::runtime_error("openpty failed");
  ::fcntl(ends.read, F_SETFD, FD_CLOEXEC);
  ::fcntl(ends.write, F_SETFD, FD_CLOEXEC);
  return ends;
}

void close_if_open(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(const std::string& program, const ProcessOptions& options, char* const* argv, const Ends& out,
                         const Ends& err) {
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
  if (options.max_file_nbytes >= 0) {
    const rlimit limit{static_cast<rlim_t>(options.max_file_nbytes), static_cast<rlim_t>(options.max_file_nbytes)};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(number, SIG_DFL);
  if (options.output == OutputKind::closed) {
    ::close(STDOUT_FILENO);
  } else {
    ::dup2(out.write, STDOUT_FILENO);
  }
  ::dup2(options.output == OutputKind::terminal ? out.write : err.write, STDERR_FILENO);
  ::execv(program.c_str(), argv);
  ::_exit(127);
}

}  // namespace

Process::Process(const std::string& program, ProcessOptions options)
    : begin_(Clock::now()), deadline_(begin_ + options.timeout) {
  Ends out = options.output == OutputKind::terminal ? make_terminal(options.columns) : make_pipe();
  Ends err = make_pipe();
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& argument : options.arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // The tests have one thread, so the environment may be changed around the fork.
  std::vector<std::pair<std::string, std::string>> before;
  for (const auto& [name, value] : options.environment) {
    const char* const old = std::getenv(name.c_str());
    before.emplace_back(name, old == nullptr ? "" : old);
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  pid_ = ::fork();
  if (pid_ == 0) become(program, options, argv.data(), out, err);
  for (const auto& [name, value] : before) {
    value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
  }
  close_if_open(out.write);
  close_if_open(err.write);
  out_fd_ = out.read;
  err_fd_ = err.read;
  if (pid_ < 0) throw std::runtime_error("fork failed");
}

Process::~Process() {
  if (!reaped_ && pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_if_open(out_fd_);
  close_if_open(err_fd_);
}

void Process::send_signal(int number) const { ::kill(pid_, number); }

void Process::stop_reading() { close_if_open(out_fd_); }

bool Process::pump() {
  pollfd fds[2] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}};
  if (::poll(fds, 2, 50) < 0) return true;
  const auto read_some = [](const pollfd& ready, int& fd, std::string& text) {
    if (fd < 0 || ready.revents == 0) return;
    char chunk[65536];
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n > 0) {
      text.append(chunk, static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      close_if_open(fd);  // a terminal whose other side is closed gives EIO
    }
  };
  read_some(fds[0], out_fd_, result_.out);
  read_some(fds[1], err_fd_, result_.err);
  return out_fd_ >= 0 || err_fd_ >= 0;
}

bool Process::wait_for_output(const std::string& text) {
  while (result_.out.find(text) == std::string::npos) {
    if (out_of_time() || !pump()) return result_.out.find(text) != std::string::npos;
  }
  return true;
}

bool Process::wait_for_handler(int number) {
  while (!out_of_time()) {
    // "SigCgt:\t0000000000000002": a bit for each signal, from signal 1 on.
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    std::string line;
    bool alive = false;
    while (std::getline(status, line)) {
      if (line.rfind("State:", 0) == 0) alive = line.find('Z') == std::string::npos;
      if (line.rfind("SigCgt:", 0) != 0) continue;
      if ((std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1) != 0) return true;
    }
    if (!alive) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

ProcessResult Process::wait() {
  while (pump()) {
    if (!out_of_time()) continue;
    result_.timed_out = true;
    ::kill(pid_, SIGKILL);
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  result_.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  return result_;
}

}  // namespace heddle::test
