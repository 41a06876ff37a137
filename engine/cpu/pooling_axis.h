// One axis of a pooling: which input positions a window covers, and which windows cover an input position. The two
// kinds of window have the same members, so that pooling.cpp has one set of loops. Windows are clipped to the input.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::cpu {

// Windows of a fixed size at a fixed distance.
struct SlidingAxis {
  std::int64_t in, out, kernel, stride, padding;

  // Position of the window's first element, which may lie in the padding: argmax counts from here.
  std::int64_t origin(std::int64_t i) const { return i * stride - padding; }
  std::int64_t begin(std::int64_t i) const { return std::max<std::int64_t>(origin(i), 0); }
  std::int64_t end(std::int64_t i) const { return std::min(origin(i) + kernel, in); }
  // Elements of the window with padding, but without what lies beyond it.
  std::int64_t padded_length(std::int64_t i) const { return std::min(origin(i) + kernel, in + padding) - origin(i); }
  // Windows [first, last) cover input position j.
  std::int64_t first(std::int64_t j) const {
    const std::int64_t beyond = j + padding - kernel;  // the last start that ends before j
    return beyond < 0 ? 0 : std::min(beyond / stride + 1, out);
  }
  std::int64_t last(std::int64_t j) const { return std::min((j + padding) / stride + 1, out); }
};

// Window i is [floor(i * in / out), ceil((i + 1) * in / out)).
struct AdaptiveAxis {
  std::int64_t in, out;

  // argmax counts from the image's corner.
  std::int64_t origin(std::int64_t) const { return 0; }
  std::int64_t begin(std::int64_t i) const { return i * in / out; }
  std::int64_t end(std::int64_t i) const { return ((i + 1) * in + out - 1) / out; }
  std::int64_t padded_length(std::int64_t i) const { return end(i) - begin(i); }
  std::int64_t first(std::int64_t j) const { return j * out / in; }
  std::int64_t last(std::int64_t j) const { return ((j + 1) * out - 1) / in + 1; }
};

}  // namespace heddle::cpu
