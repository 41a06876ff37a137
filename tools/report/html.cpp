#include "tools/report/html.h"

#include <algorithm>

namespace heddle::tools::report {

std::string escape(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: {
        const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        html += control ? std::string("&#xfffd;") : std::string(1, c);
      }
    }
  }
  return html;
}

std::string table(const std::vector<std::string>& heads, const std::vector<std::vector<Cell>>& rows) {
  std::string html = "<div class=\"scroll\"><table>\n";
  if (!heads.empty()) {
    html += "<tr>";
    for (std::size_t i = 0; i < heads.size(); ++i) {
      // As what is below.
      const bool is_number =
          std::any_of(rows.begin(), rows.end(), [i](const auto& row) { return i < row.size() && row[i].is_number; });
      html += (is_number ? "<th class=\"n\">" : "<th>") + escape(heads[i]) + "</th>";
    }
    html += "</tr>\n";
  }
  for (const std::vector<Cell>& row : rows) {
    html += "<tr>";
    for (const Cell& cell : row) {
      const std::string text = cell.emphasis ? "<b>" + escape(cell.text) + "</b>" : escape(cell.text);
      html += (cell.is_number ? "<td class=\"n\">" : "<td>") + text + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

}  // namespace heddle::tools::report
