// The named sizes of a benchmark case, "n=256 h=28 w=28": what --shape gives, what reports show, and the key by which
// two reports are compared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::tools::bench {

class Sizes {
 public:
  Sizes() = default;
  Sizes(std::initializer_list<std::pair<std::string, std::int64_t>> values) : values_(values) {}
  explicit Sizes(std::vector<std::pair<std::string, std::int64_t>> values) : values_(std::move(values)) {}

  // Throws: InvalidArgument if there is none of that name.
  std::int64_t operator[](std::string_view name) const;
  bool has(std::string_view name) const noexcept;
  const std::vector<std::pair<std::string, std::int64_t>>& values() const noexcept { return values_; }
  // "n=256 h=28"
  std::string text() const;

  // These sizes with those that the text names replaced; separators are spaces or commas. `where` begins the message
  // ("--shape of conv2d_forward"). Throws: UsageError for an unknown name (with the nearest) or a value that is no
  // whole number from 0 to 10^9.
  Sizes with(std::string_view text, const std::string& where) const;

  friend bool operator==(const Sizes&, const Sizes&) = default;

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
};

}  // namespace heddle::tools::bench
