#include "tools/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace heddle::tools {
namespace {

bool can_move_cursor(int fd) {
  if (::isatty(fd) == 0) return false;
  const char* const term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term).empty() || std::string_view(term) == "dumb") return false;
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

}  // namespace

Console::Console(int fd) : fd_(fd), is_terminal_(can_move_cursor(fd)) {}

void Console::line(std::string_view text) {
  std::string whole = prefix_;
  whole += text;
  whole += '\n';
  write(whole);
}

void Console::write(std::string_view text) {
  while (error_ == 0 && !text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      // A pipe that somebody else made non-blocking: wait until it takes more.
      pollfd ready{fd_, POLLOUT, 0};
      ::poll(&ready, 1, 1000);
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

int Console::width() const noexcept {
  winsize size{};
  return ::ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void open_missing_standard_files() noexcept {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      // The lowest free number is fd itself, since those below are open.
      [[maybe_unused]] const int opened = ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
    }
  }
}

}  // namespace heddle::tools
