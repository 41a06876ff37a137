// Values for tests: repeatable random numbers, and tensors from and to arrays of doubles.
#pragma once

#include "engine/tensor/tensor.h"
#include "tests/reference/array.h"

namespace heddle::testing {

// Uniform in [low, high), the same for equal arguments.
reference::Array random_array(const Shape& shape, double low = -1, double high = 1, std::uint64_t seed = 1);
// Whole numbers of [low, high].
reference::Array integer_array(const Shape& shape, std::int64_t low, std::int64_t high, std::uint64_t seed = 1);
// first, first + 1, ...
reference::Array counting_array(const Shape& shape, double first = 0);

// Elements converted to dtype.
Tensor tensor_of(const reference::Array& array, DType dtype = DType::f32, Device device = Device::cpu());
// Elements of a tensor of any dtype and device. Blocks.
reference::Array array_of(const Tensor& tensor);

}  // namespace heddle::testing
