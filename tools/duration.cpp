#include "tools/duration.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>

namespace heddle::tools {
namespace {

struct Unit {
  char letter;
  std::int64_t seconds;
};
constexpr Unit kUnits[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
constexpr double kMaxSeconds = 1000.0 * 86400;

}  // namespace

std::optional<double> parse_duration(std::string_view text) {
  double total = 0;
  const Unit* unit = std::begin(kUnits);  // the largest that may still come
  bool first = true;
  do {
    // from_chars would take "inf" and "-1" too.
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) {
      if (!first) return std::nullopt;
      total = number;
      break;
    }
    while (unit != std::end(kUnits) && unit->letter != text.front()) ++unit;
    if (unit == std::end(kUnits)) return std::nullopt;
    total += number * static_cast<double>(unit->seconds);
    ++unit;
    text.remove_prefix(1);
    first = false;
  } while (!text.empty());
  return total <= kMaxSeconds ? std::optional(total) : std::nullopt;
}

std::string duration_text(double seconds) {
  std::int64_t left = std::llround(seconds);
  std::string text;
  for (const Unit& unit : kUnits) {
    if (left >= unit.seconds) text += fmt::format("{}{}", left / unit.seconds, unit.letter);
    left %= unit.seconds;
  }
  return text.empty() ? "0s" : text;
}

}  // namespace heddle::tools
