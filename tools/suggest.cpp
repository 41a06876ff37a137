#include "tools/suggest.h"

namespace heddle::tools {

std::string did_you_mean(std::string_view name, std::span<const std::string> known, std::string_view prefix) {
  std::string meant = nearest_name(name, known);
  for (const std::string& candidate : known) {
    if (meant.empty() && name.size() >= 3 && candidate.starts_with(name)) meant = candidate;
  }
  return meant.empty() ? std::string() : "; did you mean " + std::string(prefix) + meant + "?";
}

}  // namespace heddle::tools
