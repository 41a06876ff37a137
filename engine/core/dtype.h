// Element types of tensors, and the bfloat16 value type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iosfwd>

#include "error.h"

namespace heddle {

// f64 exists for gradient checks on the CPU; models run in f32 or bf16. Comparison results are u8 (0 or 1).
enum class DType : std::uint8_t { f32, f64, bf16, i32, i64, u8 };

// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::bf16: return 2;
    case DType::i32: return 4;
    case DType::i64: return 8;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16;
}

// "f32", "bf16", ...
const char* name_of(DType dtype) noexcept;
// Inverse of name_of. Throws: InvalidArgument with the list of names.
DType dtype_from_name(std::string_view name);
std::ostream& operator<<(std::ostream& out, DType dtype);

// The upper half of an IEEE float: 8 exponent bits, 7 fraction bits. Conversion rounds to nearest even; NaN stays NaN.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) noexcept {
    std::uint32_t u;
    std::memcpy(&u, &value, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const noexcept {
    std::uint32_t u = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &u, 4);
    return value;
  }
};

// DType of a C++ element type.
template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of_v = dtype_of<T>::value;

}  // namespace heddle
