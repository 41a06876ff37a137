#include "engine/core/text.h"

#include <algorithm>

#include "engine/core/error.h"

namespace heddle {
namespace {

// ASCII only, so that the host program's locale has no say.
std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows i-2, i-1 and i of the table of distances between prefixes.
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  const std::string wanted = to_lower(name);
  const std::string* best = nullptr;
  std::size_t best_distance = 0;
  for (const std::string& candidate : known) {
    const std::size_t longer = std::max(wanted.size(), candidate.size());
    // The distance is at least the difference of the lengths; names from files may be long and many.
    if ((longer - std::min(wanted.size(), candidate.size())) * 3 > longer) continue;
    const std::size_t distance = edit_distance(wanted, to_lower(candidate));
    if (distance * 3 > longer) continue;
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::string() : *best;
}

std::string unknown_name_message(std::string_view what, std::string_view name, std::span<const std::string> known) {
  std::string message = join_text("unknown ", what, " '", name, "'");
  const std::string nearest = nearest_name(name, known);
  message += nearest.empty() ? ". Known: " : "; did you mean '" + nearest + "'? Known: ";
  return message + join_names(known);
}

std::string join_names(std::span<const std::string> names, std::string_view separator) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += separator;
    text += name;
  }
  return text;
}

}  // namespace heddle
