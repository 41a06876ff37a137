// The value type of the references: a shape and its elements in double. Dtypes, devices and strides do not exist here.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/shape.h"

namespace heddle::reference {

struct Array {
  Shape shape;
  std::vector<double> values;  // row-major

  Array() = default;
  explicit Array(const Shape& s, double value = 0.0) : shape(s), values(static_cast<std::size_t>(s.numel()), value) {}
  Array(const Shape& s, std::vector<double> v) : shape(s), values(std::move(v)) {
    HEDDLE_CHECK(static_cast<std::size_t>(shape.numel()) == values.size(), "array: shape ", shape, " and ",
                 values.size(), " values");
  }

  bool defined() const noexcept { return !values.empty() || shape.rank() > 0; }
  std::int64_t numel() const noexcept { return shape.numel(); }
  std::int64_t dim(int i) const { return shape[i]; }
  double& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
  // Element of an array of rank 4.
  double& at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) { return (*this)[flat(a, b, c, d)]; }
  double at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const { return (*this)[flat(a, b, c, d)]; }

 private:
  std::int64_t flat(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    return ((a * shape[1] + b) * shape[2] + c) * shape[3] + d;
  }
};

using Arrays = std::vector<Array>;

}  // namespace heddle::reference
