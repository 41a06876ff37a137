#include "tools/bench/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

constexpr std::int64_t kLargest = 1'000'000'000;

std::int64_t parse_value(std::string_view name, std::string_view text, const std::string& where) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 || value > kLargest) {
    throw UsageError(fmt::format("{}: {} is '{}'; expected a whole number from 0 to {}", where, name, text, kLargest));
  }
  return value;
}

}  // namespace

std::int64_t Sizes::operator[](std::string_view name) const {
  for (const auto& [known, value] : values_) {
    if (known == name) return value;
  }
  throw InvalidArgument(fmt::format("no size is named {}", name));
}

bool Sizes::has(std::string_view name) const noexcept {
  return std::any_of(values_.begin(), values_.end(), [&](const auto& value) { return value.first == name; });
}

std::string Sizes::text() const {
  std::string text;
  for (const auto& [name, value] : values_) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

Sizes Sizes::with(std::string_view text, const std::string& where) const {
  Sizes changed = *this;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" ,"), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const auto found = std::find_if(changed.values_.begin(), changed.values_.end(),
                                    [&](const auto& value) { return value.first == name; });
    if (found == changed.values_.end()) {
      std::vector<std::string> names;
      for (const auto& value : values_) names.push_back(value.first);
      throw UsageError(fmt::format("{}: unknown size '{}'; expected {}{}", where, name, join_names(names),
                                   did_you_mean(name, names)));
    }
    if (equals == std::string_view::npos)
      throw UsageError(fmt::format("{}: '{}' has no value; write {}=N", where, name, name));
    found->second = parse_value(name, part.substr(equals + 1), where);
  }
  return changed;
}

}  // namespace heddle::tools::bench
