// From run-time dtypes to the element types of kernels. Used by the primitives of this folder.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "engine/tensor/tensor.h"

namespace heddle::cuda {

// The element type of device code for each dtype that a CUDA device computes with. f64 is the CPU's.
template <DType dtype>
struct DeviceElement;
template <>
struct DeviceElement<DType::f32> {
  using type = float;
};
template <>
struct DeviceElement<DType::bf16> {
  using type = __nv_bfloat16;
};
template <>
struct DeviceElement<DType::i32> {
  using type = std::int32_t;
};
template <>
struct DeviceElement<DType::i64> {
  using type = std::int64_t;
};
template <>
struct DeviceElement<DType::u8> {
  using type = std::uint8_t;
};

template <class T>
struct TypeTag {
  using type = T;
};

[[noreturn]] inline void throw_not_supported(const char* op, DType dtype) {
  throw NotSupported(join_text(op, " of ", dtype, " is not offered on a CUDA device"));
}

// Calls fn(TypeTag<T>{}) with the element type of the one of dtypes that dtype is. Throws: NotSupported naming op and
// dtype if it is none.
template <DType... dtypes, class Fn>
void visit_types(const char* op, DType dtype, Fn&& fn) {
  const bool found = ((dtype == dtypes && (fn(TypeTag<typename DeviceElement<dtypes>::type>{}), true)) || ...);
  if (!found) throw_not_supported(op, dtype);
}
template <class Fn>
void visit_floats(const char* op, DType dtype, Fn&& fn) {
  visit_types<DType::f32, DType::bf16>(op, dtype, fn);
}
template <class Fn>
void visit_all(const char* op, DType dtype, Fn&& fn) {
  visit_types<DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8>(op, dtype, fn);
}

// Calls fn with the unsigned type of the element's size, for operations that only move elements.
template <class Fn>
void visit_size(const char* op, DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::u8: return fn(TypeTag<std::uint8_t>{});
    case DType::bf16: return fn(TypeTag<std::uint16_t>{});
    case DType::f32:
    case DType::i32: return fn(TypeTag<std::uint32_t>{});
    case DType::i64: return fn(TypeTag<std::uint64_t>{});
    default: throw_not_supported(op, dtype);
  }
}

// Untyped data with a type; nullptr for an undefined tensor.
template <class T>
const T* data_of(const Tensor& tensor) {
  return static_cast<const T*>(tensor.raw_data());
}
template <class T>
T* data_of(Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_raw_data());
}

}  // namespace heddle::cuda
