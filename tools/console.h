// Standard output and standard error as the program uses them: whole lines written at once, a reader that goes away or
// a full disk noticed once, and the question whether a person watches on a terminal.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace heddle::tools {

// Not thread-safe. After the first failed write everything is dropped silently: see error().
class Console {
 public:
  explicit Console(int fd);

  // Begins every line from now on, to tell processes apart that write to one place.
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  // No cursor movement, although it looks like a terminal: somebody else collects what comes out.
  void set_plain() noexcept { is_terminal_ = false; }

  // Writes the text and a line end in one go.
  void line(std::string_view text = {});
  // Writes the text as it is.
  void write(std::string_view text);

  // A terminal that understands cursor movement, and NO_COLOR is not set.
  bool is_terminal() const noexcept { return is_terminal_; }
  // Columns of the terminal now; 80 if unknown.
  int width() const noexcept;
  // errno of the write that failed; 0 if none.
  int error() const noexcept { return error_; }

 private:
  std::string prefix_;
  int fd_;
  bool is_terminal_;
  int error_ = 0;
};

// Opens /dev/null in the place of standard input, output or error that the parent closed, so that no data file gets
// their number.
void open_missing_standard_files() noexcept;

}  // namespace heddle::tools
