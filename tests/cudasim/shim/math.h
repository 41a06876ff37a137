// Device mathematics for kernels that a host compiler compiled. Fast variants are computed exactly: what they lose on
// hardware cannot be seen here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>

namespace cudasim {

template <class To, class From>
To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

// Float to integer as the hardware does it: out of range saturates, NaN gives 0.
template <class Integer>
Integer saturated(double value) {
  using Limits = std::numeric_limits<Integer>;
  static_assert(sizeof(Integer) <= 4, "larger limits are no exact doubles");
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<Integer>(value);
}

}  // namespace cudasim

// ---- min and max for the mixtures of types that nvcc has overloads for ----
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
  }
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
  }
}

// ---- Single precision ----
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.0f / std::sqrt(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __tanhf(float x) { return std::tanh(x); }
// The C library declares functions of these names for itself.
#define __expf(x) std::exp(static_cast<float>(x))
#define __exp10f(x) std::pow(10.0f, static_cast<float>(x))
#define __logf(x) std::log(static_cast<float>(x))
#define __log2f(x) std::log2(static_cast<float>(x))
#define __log10f(x) std::log10(static_cast<float>(x))
#define __powf(x, y) std::pow(static_cast<float>(x), static_cast<float>(y))
#define __sinf(x) std::sin(static_cast<float>(x))
#define __cosf(x) std::cos(static_cast<float>(x))
// Some C libraries have functions of these names, some have not.
namespace cudasim {
template <class T>
T sine_of_half_turns(T x) {
  return std::sin(std::numbers::pi_v<T> * std::fmod(x, T{2}));
}
template <class T>
T cosine_of_half_turns(T x) {
  return std::cos(std::numbers::pi_v<T> * std::fmod(x, T{2}));
}
}  // namespace cudasim
#define sinpi(x) cudasim::sine_of_half_turns(x)
#define cospi(x) cudasim::cosine_of_half_turns(x)
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}

// ---- Conversions ----
inline int __float_as_int(float x) { return cudasim::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return cudasim::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return cudasim::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return cudasim::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return cudasim::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return cudasim::bits_as<double>(x); }
inline int __float2int_rn(float x) { return cudasim::saturated<int>(std::nearbyint(static_cast<double>(x))); }
inline int __float2int_rz(float x) { return cudasim::saturated<int>(std::trunc(static_cast<double>(x))); }
inline int __float2int_rd(float x) { return cudasim::saturated<int>(std::floor(static_cast<double>(x))); }
inline int __float2int_ru(float x) { return cudasim::saturated<int>(std::ceil(static_cast<double>(x))); }
inline unsigned __float2uint_rn(float x) {
  return cudasim::saturated<unsigned>(std::nearbyint(static_cast<double>(x)));
}
inline unsigned __float2uint_rz(float x) { return cudasim::saturated<unsigned>(std::trunc(static_cast<double>(x))); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// ---- Integers ----
inline int __mulhi(int x, int y) { return static_cast<int>((static_cast<std::int64_t>(x) * y) >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(x) * y) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  const unsigned long long x_low = x & 0xffffffffu;
  const unsigned long long x_high = x >> 32;
  const unsigned long long y_low = y & 0xffffffffu;
  const unsigned long long y_high = y >> 32;
  const unsigned long long middle = x_high * y_low + (x_low * y_low >> 32);
  const unsigned long long other = x_low * y_high + (middle & 0xffffffffu);
  return x_high * y_high + (middle >> 32) + (other >> 32);
}
inline unsigned umulhi(unsigned x, unsigned y) { return __umulhi(x, y); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  shift &= 31u;
  return shift == 0 ? high : high << shift | low >> (32 - shift);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  shift &= 31u;
  return shift == 0 ? low : low >> shift | high << (32 - shift);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 0xfu;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7u))) & 0xffu;
    // The top bit of a choice asks for copies of the byte's sign.
    if ((choice & 8u) != 0) byte = (byte & 0x80u) != 0 ? 0xffu : 0u;
    result |= byte << (8 * i);
  }
  return result;
}
