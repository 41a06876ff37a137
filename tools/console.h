// Standard output and standard error as the program uses them: whole lines written at once, a reader that goes away or
// a full disk noticed once, and the question whether a person watches on a terminal.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/core/file.h"

namespace heddle::tools {

// Not thread-safe. After the first failed write everything is dropped silently: see error().
//
// A pipe or terminal whose reader stops reading for a while (a pager, a held terminal, a launcher that is busy ending
// its ranks) does not stop the program: up to a megabyte is kept until it reads on, and only then a write waits.
class Console {
 public:
  explicit Console(int fd);
  // As flush().
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Begins every line from now on, to tell processes apart that write to one place.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  // No cursor movement, although it looks like a terminal: somebody else collects what comes out.
  void set_plain() noexcept { is_terminal_ = false; }

  // Writes the text and a line end in one go.
  void line(std::string_view text = {});
  // Writes the text as it is.
  void write(std::string_view text);
  // Waits until everything is written.
  void flush();

  // A terminal that understands cursor movement, and NO_COLOR is not set.
  bool is_terminal() const noexcept { return is_terminal_; }
  // Columns of the terminal now; 80 if unknown.
  int width() const noexcept;
  // errno of the write that failed; 0 if none.
  int error() const noexcept { return error_; }

 private:
  friend class HurryScope;
  using Clock = std::chrono::steady_clock;
  // As much as can be written now.
  void send();
  // Until no more than so many bytes are left to be written.
  void wait_until_left(std::size_t nbytes);
  bool out_of_patience();

  std::string prefix_;
  int fd_;
  FileHandle own_;  // fd_'s pipe or terminal, opened once more so that this program's writes alone do not block
  bool is_terminal_;
  int error_ = 0;
  std::string waiting_;             // accepted and not written
  std::function<bool()> in_hurry_;  // of a HurryScope
  std::optional<Clock::time_point> hurry_end_;
};

// Once in_hurry() says so (it must stay true then), the console waits no longer than a second for a reader, also after
// the end of this scope.
class HurryScope {
 public:
  HurryScope(Console& console, std::function<bool()> in_hurry);
  ~HurryScope();
  HurryScope(const HurryScope&) = delete;
  HurryScope& operator=(const HurryScope&) = delete;

 private:
  Console& console_;
};

// Opens /dev/null in the place of standard input, output or error that the parent closed, so that no data file gets
// their number.
void open_missing_standard_files() noexcept;

}  // namespace heddle::tools
