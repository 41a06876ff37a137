// A height and a width; one number stands for both. For the options of layers.
#pragma once

#include <cstdint>
#include <ostream>

namespace heddle::nn {

struct Size2d {
  std::int64_t h = 1;
  std::int64_t w = 1;

  constexpr Size2d(std::int64_t both) : h(both), w(both) {}  // NOLINT(google-explicit-constructor): kernel_size = 5
  constexpr Size2d(std::int64_t height, std::int64_t width) : h(height), w(width) {}
  friend bool operator==(const Size2d&, const Size2d&) = default;
};

// "(5, 5)"
inline std::ostream& operator<<(std::ostream& out, const Size2d& size) {
  return out << '(' << size.h << ", " << size.w << ')';
}

}  // namespace heddle::nn
