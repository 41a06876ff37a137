// Serves a folder over HTTP on a free port of this machine, by Python's http.server; needs python3.
// Like many simple servers it cannot send parts of a file.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

extern char** environ;

namespace heddle::test {

class HttpServer {
 public:
  explicit HttpServer(const std::string& folder) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    std::string script =
        "import http.server, functools, sys\n"
        "class Quiet(http.server.SimpleHTTPRequestHandler):\n"
        "  def log_message(self, *a): pass\n"
        "s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=sys.argv[1]))\n"
        "print(s.server_address[1], flush=True)\n"
        "s.serve_forever()\n";
    std::string python = "python3", option = "-c", where = folder;
    char* argv[] = {python.data(), option.data(), script.data(), where.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    if (::posix_spawnp(&pid_, "python3", &actions, nullptr, argv, environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    std::FILE* out = ::fdopen(ends[0], "r");
    int port = 0;
    if (std::fscanf(out, "%d", &port) == 1) url_ = "http://127.0.0.1:" + std::to_string(port) + "/";
    std::fclose(out);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  // Empty if there is no python3.
  const std::string& url() const { return url_; }

 private:
  pid_t pid_ = -1;
  std::string url_;
};

}  // namespace heddle::test
