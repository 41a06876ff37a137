// Small helpers of the op tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "tests/support/devices.h"
#include "tests/support/values.h"

namespace heddle::testing {

inline Tensor values(const Shape& shape, const std::vector<double>& v, DType dtype = DType::f32,
                     Device device = Device::cpu()) {
  return tensor_of(reference::Array(shape, v), dtype, device);
}

// A leaf that requires a gradient.
inline Variable leaf(const Shape& shape, const std::vector<double>& v, DType dtype = DType::f32,
                     Device device = Device::cpu()) {
  return Variable(values(shape, v, dtype, device), true);
}

inline Variable random_leaf(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64) {
  return Variable(tensor_of(random_array(shape, -1, 1, seed), dtype), true);
}

inline Tensor labels(const std::vector<std::int64_t>& v) {
  return Tensor::from_values(v, Shape{static_cast<std::int64_t>(v.size())});
}

inline std::vector<double> list(const Tensor& x) { return array_of(x).values; }
inline std::vector<double> list(const Variable& x) { return list(x.data()); }

// "" if all elements agree within abs + rel tolerance, else the first that does not.
inline std::string differs(const std::vector<double>& value, const std::vector<double>& expected, double abs = 1e-5,
                           double rel = 1e-5) {
  if (value.size() != expected.size()) return join_text(value.size(), " elements, expected ", expected.size());
  for (std::size_t i = 0; i < value.size(); ++i) {
    const double v = value[i], e = expected[i];
    if (v == e || (v != v && e != e)) continue;
    const double gap = v > e ? v - e : e - v;
    if (!(gap <= abs + rel * (e < 0 ? -e : e))) return join_text("element ", i, " is ", v, ", expected ", e);
  }
  return "";
}

// The outer product of a vector with itself.
inline std::vector<double> outer(const std::vector<double>& v) {
  std::vector<double> product;
  for (const double a : v) {
    for (const double b : v) product.push_back(a * b);
  }
  return product;
}

}  // namespace heddle::testing
