#include "engine/core/shape.h"

#include <algorithm>
#include <limits>
#include <ostream>

namespace heddle {
namespace {

std::string text_of(std::span<const std::int64_t> dims) {
  std::string text = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) text += ',';
    text += std::to_string(dims[i]);
  }
  return text + ")";
}

}  // namespace

Shape::Shape(std::span<const std::int64_t> dims) {
  HEDDLE_CHECK(dims.size() <= static_cast<std::size_t>(kMaxRank), "shape ", text_of(dims), " has ", dims.size(),
               " dimensions; at most ", kMaxRank, " are possible");
  rank_ = static_cast<int>(dims.size());
  bool has_zero = false;
  for (std::int64_t d : dims) {
    HEDDLE_CHECK(d >= 0, "shape ", text_of(dims), " has the negative dimension ", d);
    has_zero = has_zero || d == 0;
  }
  std::copy(dims.begin(), dims.end(), dims_.begin());
  for (std::int64_t d : dims) {
    if (d == 0) continue;
    HEDDLE_CHECK(numel_ <= std::numeric_limits<std::int64_t>::max() / d, "shape ", text_of(dims),
                 " has more elements than 64 bits can count");
    numel_ *= d;
  }
  if (has_zero) numel_ = 0;
}

int Shape::normalize_dim(int i) const {
  const int j = i < 0 ? i + rank_ : i;
  HEDDLE_CHECK(j >= 0 && j < rank_, "dimension ", i, " is out of range for shape ", to_string());
  return j;
}

std::int64_t Shape::operator[](int i) const { return dims_[static_cast<std::size_t>(normalize_dim(i))]; }

std::array<std::int64_t, Shape::kMaxRank> Shape::strides() const noexcept {
  std::array<std::int64_t, kMaxRank> strides{};
  std::int64_t step = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = step;
    step *= dims_[static_cast<std::size_t>(i)];
  }
  return strides;
}

std::int64_t Shape::numel_between(int begin, int end) const {
  std::int64_t product = 1;
  for (int i = begin; i < end; ++i) product *= (*this)[i];
  return product;
}

bool operator==(const Shape& a, const Shape& b) noexcept {
  return a.rank_ == b.rank_ && std::equal(a.dims_.begin(), a.dims_.begin() + a.rank_, b.dims_.begin());
}

std::string Shape::to_string() const { return text_of(dims()); }

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.to_string(); }

std::size_t checked_nbytes(const Shape& shape, std::size_t element_nbytes) {
  const auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  HEDDLE_CHECK(static_cast<std::uint64_t>(shape.numel()) <= limit / element_nbytes, "shape ", shape, " with ",
               element_nbytes, "-byte elements needs more bytes than 63 bits can count");
  return static_cast<std::size_t>(shape.numel()) * element_nbytes;
}

}  // namespace heddle
