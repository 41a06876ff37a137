// The dimensions of a dense row-major tensor.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "error.h"

namespace heddle {

// At most kMaxRank dimensions, each >= 0, whose product fits in int64. Rank 0 is a scalar with one element.
// A small value type: copying allocates nothing.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  // Throws: InvalidArgument naming the shape if a dimension is negative, the rank is above kMaxRank or numel overflows.
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);
  explicit Shape(const std::vector<std::int64_t>& dims) : Shape(std::span<const std::int64_t>(dims)) {}

  int rank() const noexcept { return rank_; }
  std::int64_t numel() const noexcept { return numel_; }
  // Dimension i; negative i counts from the end. Throws: InvalidArgument if out of range.
  std::int64_t operator[](int i) const;
  // i as a non-negative dimension index. Throws: InvalidArgument if out of range.
  int normalize_dim(int i) const;
  std::span<const std::int64_t> dims() const noexcept { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  // Elements between neighbours of each dimension.
  std::array<std::int64_t, kMaxRank> strides() const noexcept;
  // Product of dimensions [begin, end).
  std::int64_t numel_between(int begin, int end) const;

  friend bool operator==(const Shape& a, const Shape& b) noexcept;
  std::string to_string() const;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  std::int64_t numel_ = 1;
  int rank_ = 0;
};

// "(8,28,28,3)"
std::ostream& operator<<(std::ostream& out, const Shape& shape);

// numel * element size. Throws: InvalidArgument naming the shape if the product does not fit in 63 bits.
std::size_t checked_nbytes(const Shape& shape, std::size_t element_nbytes);

}  // namespace heddle
