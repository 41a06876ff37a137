#include "datasets/download.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/core/file.h"

extern char** environ;

namespace heddle::datasets {
namespace {

constexpr int kPollMilliseconds = 100;
constexpr std::size_t kMaxShownNbytes = 400;

std::string find_program(const std::string& name) {
  const char* variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "/usr/local/bin:/usr/bin:/bin" : variable;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string candidate = path.substr(begin, end - begin) + "/" + name;
    struct stat info {};
    // Only absolute folders: a program from the working directory is not what the user meant.
    if (candidate[0] == '/' && ::access(candidate.c_str(), X_OK) == 0 && ::stat(candidate.c_str(), &info) == 0 &&
        S_ISREG(info.st_mode)) {
      return candidate;
    }
    begin = end + 1;
  }
  return {};
}

bool is_wget(const std::string& program) {
  return std::string_view(program).substr(program.rfind('/') + 1).substr(0, 4) == "wget";
}

std::vector<std::string> arguments_for(const std::string& url, const std::string& path,
                                       const DownloadOptions& options) {
  const std::string connect = std::to_string(options.connect_timeout.count());
  const std::string stall = std::to_string(options.stall_timeout.count());
  if (is_wget(options.program)) {
    return {options.program,
            "--no-verbose",
            "--tries=2",
            "--connect-timeout=" + connect,
            "--read-timeout=" + stall,
            "--continue",
            "--output-document=" + path,
            url};
  }
  return {options.program,
          "--fail",
          "--location",
          "--silent",
          "--show-error",
          "--proto",
          "=http,https,file",
          "--proto-redir",
          "=http,https",
          "--connect-timeout",
          connect,
          "--speed-limit",
          "100",
          "--speed-time",
          stall,
          "--max-filesize",
          std::to_string(options.max_nbytes),
          "--continue-at",
          "-",
          "--output",
          path,
          url};
}

std::uint64_t file_nbytes(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

// A child process with an empty stdin, no stdout, and its stderr in a pipe. Killed if it is not waited for.
class Child {
 public:
  explicit Child(std::vector<std::string> arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw IoError(arguments[0], "cannot be run: " + errno_text(errno));
    errors_ = FileHandle(ends[0]);
    const FileHandle write_end(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    // The child gets the usual handling of signals, whatever the host program blocks or ignores.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int error = ::posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      pid_ = -1;
      throw IoError(arguments[0], "cannot be run: " + errno_text(error));
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  // Waits a moment, collects stderr, and returns true when the child has ended.
  bool poll() {
    pollfd waiting{errors_.get(), POLLIN, 0};
    ::poll(&waiting, 1, kPollMilliseconds);
    const bool closed = collect();
    // Only when stderr is closed can no text be missing; a grandchild that keeps it open must not hold us up.
    if (closed) ::usleep(1000);
    const pid_t result = ::waitpid(pid_, &status_, WNOHANG);
    if (result == 0 || (result < 0 && errno == EINTR)) return false;
    collect();
    pid_ = -1;
    return true;
  }
  void kill() noexcept {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
  int status() const noexcept { return status_; }
  // The last line that has text: curl and wget put the reason there.
  std::string last_line() const {
    std::string text = text_;
    text.erase(std::find_if(text.rbegin(), text.rend(), [](char c) { return c > ' '; }).base(), text.end());
    if (const auto newline = text.rfind('\n'); newline != std::string::npos) text.erase(0, newline + 1);
    text.resize(std::min(text.size(), kMaxShownNbytes));
    for (char& c : text) c = (c < ' ' || c == 127) ? ' ' : c;
    return text;
  }

 private:
  bool collect() {
    std::array<char, 4096> chunk;
    for (;;) {
      const ssize_t n = ::read(errors_.get(), chunk.data(), chunk.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n == 0;
      text_.append(chunk.data(), static_cast<std::size_t>(n));
      if (text_.size() > 65536) text_.erase(0, text_.size() - 32768);
    }
  }

  pid_t pid_ = -1;
  int status_ = 0;
  FileHandle errors_;
  std::string text_;
};

}  // namespace

std::string find_download_program() {
  std::string program = find_program("curl");
  return program.empty() ? find_program("wget") : program;
}

DownloadResult download(const std::string& url, const std::string& path, const DownloadOptions& given) {
  const bool known = url.rfind("http://", 0) == 0 || url.rfind("https://", 0) == 0 || url.rfind("file://", 0) == 0;
  HEDDLE_CHECK(known, "download: the URL is ", url, ", expected http://, https:// or file://");
  DownloadOptions options = given;
  if (options.program.empty()) options.program = find_download_program();
  if (options.program.empty()) throw NotSupported("download: neither curl nor wget was found in $PATH; install one");

  const std::uint64_t begin_nbytes = file_nbytes(path);
  Child child(arguments_for(url, path, options));
  DownloadResult result;
  const auto too_large = [&] { return file_nbytes(path) > options.max_nbytes; };
  while (!child.poll()) {
    if (options.on_progress && !options.on_progress(file_nbytes(path))) {
      result.stopped = true;
      result.reason = "stopped";
      return result;
    }
    if (too_large()) break;
  }
  child.kill();
  if (too_large()) {
    result.reason = join_text("is larger than ", options.max_nbytes, " bytes");
    return result;
  }
  const int status = child.status();
  result.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!result.ok) {
    result.reason = child.last_line();
    if (WIFSIGNALED(status)) result.reason = join_text(options.program, " was ended by signal ", WTERMSIG(status));
    // curl: 33 no ranges, 36 bad offset; HTTP 416: the file there is not longer than ours.
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    const auto says = [&](const char* text) { return result.reason.find(text) != std::string::npos; };
    const bool curl_cannot = !is_wget(options.program) && (code == 33 || code == 36);
    result.cannot_continue = begin_nbytes > 0 && (curl_cannot || says("416") || says("conflicts with"));
    if (result.reason.empty()) result.reason = join_text(options.program, " ended with code ", WEXITSTATUS(status));
  }
  return result;
}

}  // namespace heddle::datasets
