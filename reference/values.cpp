#include "reference/values.h"

#include "engine/core/random.h"

namespace heddle::reference {
namespace {

template <class Fn>
void visit_type(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::f32: return fn(float{});
    case DType::f64: return fn(double{});
    case DType::bf16: return fn(bfloat16{});
    case DType::i32: return fn(std::int32_t{});
    case DType::i64: return fn(std::int64_t{});
    case DType::u8: return fn(std::uint8_t{});
  }
}

}  // namespace

Array random_array(const Shape& shape, double low, double high, std::uint64_t seed) {
  Philox random(seed, 0x7465737473);
  Array array(shape);
  for (double& value : array.values) value = low + (high - low) * static_cast<double>(random.uniform());
  return array;
}

Array integer_array(const Shape& shape, std::int64_t low, std::int64_t high, std::uint64_t seed) {
  Philox random(seed, 0x696e7473);
  Array array(shape);
  for (double& value : array.values) {
    value = static_cast<double>(low + random.below(static_cast<std::uint32_t>(high - low + 1)));
  }
  return array;
}

Array counting_array(const Shape& shape, double first) {
  Array array(shape);
  for (double& value : array.values) value = first++;
  return array;
}

Tensor tensor_of(const Array& array, DType dtype, Device device) {
  Tensor tensor = Tensor::empty(array.shape, dtype);
  visit_type(dtype, [&]<class T>(T) {
    T* const data = tensor.mutable_host_data<T>();
    for (std::size_t i = 0; i < array.values.size(); ++i) {
      if constexpr (std::is_same_v<T, bfloat16>) {
        data[i] = bfloat16(static_cast<float>(array.values[i]));
      } else {
        data[i] = static_cast<T>(array.values[i]);
      }
    }
  });
  return tensor.to(device);
}

Array array_of(const Tensor& tensor) {
  Array array(tensor.shape());
  const Tensor host = tensor.to(Device::cpu());
  visit_type(tensor.dtype(), [&]<class T>(T) {
    const T* const data = host.host_data<T>();
    for (std::size_t i = 0; i < array.values.size(); ++i) {
      if constexpr (std::is_same_v<T, bfloat16>) {
        array.values[i] = static_cast<double>(static_cast<float>(data[i]));
      } else {
        array.values[i] = static_cast<double>(data[i]);
      }
    }
  });
  return array;
}

}  // namespace heddle::reference
