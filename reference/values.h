// Values for tests and benchmarks: repeatable random numbers, and tensors from and to arrays of doubles.
#pragma once

#include "engine/tensor/tensor.h"
#include "reference/array.h"

namespace heddle::reference {

// Uniform in [low, high), the same for equal arguments.
Array random_array(const Shape& shape, double low = -1, double high = 1, std::uint64_t seed = 1);
// Whole numbers of [low, high].
Array integer_array(const Shape& shape, std::int64_t low, std::int64_t high, std::uint64_t seed = 1);
// first, first + 1, ...
Array counting_array(const Shape& shape, double first = 0);

// Elements converted to dtype.
Tensor tensor_of(const Array& array, DType dtype = DType::f32, Device device = Device::cpu());
// Elements of a tensor of any dtype and device. Blocks.
Array array_of(const Tensor& tensor);

}  // namespace heddle::reference
