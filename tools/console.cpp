#include "tools/console.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace heddle::tools {
namespace {

constexpr std::size_t kMostWaiting = std::size_t{1} << 20;
constexpr std::chrono::seconds kHurry{1};
constexpr int kTickMs = 100;  // between looks whether there is a hurry

// A description of its own, since O_NONBLOCK on the one that was handed down would hold for all who share it. None
// where that is not possible; files on a disk need none.
FileHandle open_without_blocking(int fd) {
  struct stat state {};
  if (::fstat(fd, &state) != 0 || !(S_ISFIFO(state.st_mode) || ::isatty(fd) != 0)) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return FileHandle(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

bool can_move_cursor(int fd) {
  if (::isatty(fd) == 0) return false;
  const char* const term = std::getenv("TERM");
  if (term == nullptr || std::string_view(term).empty() || std::string_view(term) == "dumb") return false;
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

// Names of files and of what is in them come from outside, and a terminal obeys control characters.
std::string printable(std::string_view text) {
  std::string shown;
  const auto byte_at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  // U+0080 to U+009F are control characters too: C2 80 to C2 9F in UTF-8.
  const auto begins_c1 = [&](std::size_t i) {
    return byte_at(i) == 0xc2 && byte_at(i + 1) >= 0x80 && byte_at(i + 1) <= 0x9f;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned byte = byte_at(i);
    const bool control = byte < 0x20 || byte == 0x7f || begins_c1(i) || (i > 0 && begins_c1(i - 1));
    if (!control || byte == '\n' || byte == '\t') {
      shown += text[i];
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      shown += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
    }
  }
  return shown;
}

}  // namespace

Console::Console(int fd) : fd_(fd), own_(open_without_blocking(fd)), is_terminal_(can_move_cursor(fd)) {}

Console::~Console() {
  try {
    flush();
  } catch (const std::exception&) {
    // Nothing more can be written.
  }
}

void Console::line(std::string_view text) {
  std::string whole = prefix_;
  whole += printable(text);
  whole += '\n';
  write(whole);
}

void Console::write(std::string_view text) {
  if (error_ != 0) return;
  waiting_ += text;
  send();
  wait_until_left(kMostWaiting);
}

void Console::flush() { wait_until_left(0); }

void Console::send() {
  while (error_ == 0 && !waiting_.empty()) {
    // Of what is as short others on the same pipe see all or nothing; whole lines, if there are any.
    const std::string_view part = std::string_view(waiting_).substr(0, PIPE_BUF);
    const std::size_t lines = part.rfind('\n') + 1;
    const ssize_t n = ::write(own_ ? own_.get() : fd_, part.data(), lines > 0 ? lines : part.size());
    if (n >= 0) {
      waiting_.erase(0, static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

void Console::wait_until_left(std::size_t nbytes) {
  while (error_ == 0 && waiting_.size() > nbytes) {
    if (out_of_patience()) {
      error_ = ETIMEDOUT;
      return;
    }
    pollfd ready{own_ ? own_.get() : fd_, POLLOUT, 0};
    ::poll(&ready, 1, kTickMs);
    send();
  }
}

bool Console::out_of_patience() {
  if (!hurry_end_ && in_hurry_ && in_hurry_()) hurry_end_ = Clock::now() + kHurry;
  return hurry_end_ && Clock::now() >= *hurry_end_;
}

HurryScope::HurryScope(Console& console, std::function<bool()> in_hurry) : console_(console) {
  console_.in_hurry_ = std::move(in_hurry);
}

HurryScope::~HurryScope() {
  if (console_.in_hurry_() && !console_.hurry_end_) console_.hurry_end_ = Console::Clock::now() + kHurry;
  console_.in_hurry_ = {};
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
