// From run-time dtypes to C++ types, and the arithmetic type of each. Used by the primitives of this folder.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "engine/tensor/tensor.h"

namespace heddle::cpu {

template <class T>
struct TypeTag {
  using type = T;
};

[[noreturn]] inline void throw_not_supported(const char* op, DType dtype) {
  throw NotSupported(join_text(op, " of ", dtype, " is not offered on the CPU"));
}

// Calls fn(TypeTag<T>{}) for the T of Ts that dtype names. Throws: NotSupported naming op and dtype if none is.
template <class... Ts, class Fn>
void visit_types(const char* op, DType dtype, Fn&& fn) {
  const bool found = ((dtype == dtype_of_v<Ts> && (fn(TypeTag<Ts>{}), true)) || ...);
  if (!found) throw_not_supported(op, dtype);
}
template <class Fn>
void visit_floats(const char* op, DType dtype, Fn&& fn) {
  visit_types<float, double, bfloat16>(op, dtype, fn);
}
template <class Fn>
void visit_f32_f64(const char* op, DType dtype, Fn&& fn) {
  visit_types<float, double>(op, dtype, fn);
}
template <class Fn>
void visit_all(const char* op, DType dtype, Fn&& fn) {
  visit_types<float, double, bfloat16, std::int32_t, std::int64_t, std::uint8_t>(op, dtype, fn);
}

// The type that arithmetic is done in: bf16 in f32, everything else in itself.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;

template <class T>
Compute<T> load(const T& value) {
  return static_cast<Compute<T>>(value);
}

// Any arithmetic value as T. Float to integer truncates towards zero; what T cannot hold becomes its nearest value, NaN
// becomes 0. Integers wrap.
template <class T, class From>
T convert_to(From value) {
  if constexpr (std::is_same_v<From, bfloat16>) {
    return convert_to<T>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<From>) {
    if (!(value == value)) return 0;
    // The limits as powers of two, which every float type holds exactly: T holds [low, high).
    constexpr From high = static_cast<From>(std::uint64_t{1} << (std::numeric_limits<T>::digits - 1)) * 2;
    constexpr From low = std::is_signed_v<T> ? -high : From{0};
    if (value >= high) return std::numeric_limits<T>::max();
    if (value < low) return std::numeric_limits<T>::min();
    return static_cast<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// Elements of one part of a parallel loop: enough that starting a thread pays.
inline constexpr std::int64_t kGrain = 16384;

// Untyped data with a type, without the version bump and the check of Tensor's own accessors per call.
template <class T>
const T* data_of(const Tensor& tensor) {
  return static_cast<const T*>(tensor.raw_data());
}
template <class T>
T* data_of(Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_raw_data());
}

}  // namespace heddle::cpu
