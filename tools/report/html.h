// Text that goes into an HTML page. Used by the parts of a report; knows nothing of runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::tools::report {

// The text as content of an element or of a quoted attribute: & < > " ' become references, and control characters other
// than tabs and line ends the sign for what cannot be shown.
std::string escape(std::string_view text);

// One cell of a table; a text from outside is escaped here.
struct Cell {
  std::string text;
  bool emphasis = false;
  bool is_number = false;  // stands on the right
};

// <table> with the heads above; rows may be shorter. An empty head list gives a table of names and values.
std::string table(const std::vector<std::string>& heads, const std::vector<std::vector<Cell>>& rows);

}  // namespace heddle::tools::report
