// Element types of the kernels: what arithmetic is done in, conversions between all of them, and 16-byte packs.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace heddle::cuda {

using bf16 = __nv_bfloat16;

// The type that arithmetic is done in: bf16 in f32, everything else in itself.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, bf16>, float, T>;

template <class T>
__device__ inline Compute<T> widen(T value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return __bfloat162float(value);
  } else {
    return value;
  }
}

// Any arithmetic value as T. Float to bf16 rounds to nearest even. Float to integer truncates towards zero; what T
// cannot hold becomes its nearest value, NaN becomes 0. Integers wrap.
template <class T, class From>
__device__ inline T convert_to(From value) {
  if constexpr (std::is_same_v<From, T>) {
    return value;
  } else if constexpr (std::is_same_v<From, bf16>) {
    return convert_to<T>(__bfloat162float(value));
  } else if constexpr (std::is_same_v<T, bf16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
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

// Integers wrap around; done unsigned because signed overflow is undefined.
template <class C>
using Wrapping = std::conditional_t<std::is_integral_v<C>, std::uint64_t, C>;
template <class C>
__device__ inline C add(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) + static_cast<Wrapping<C>>(b));
}
template <class C>
__device__ inline C subtract(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) - static_cast<Wrapping<C>>(b));
}
template <class C>
__device__ inline C multiply(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) * static_cast<Wrapping<C>>(b));
}

// N neighbouring elements that are read or written together, in accesses of up to 16 bytes. The address must be a
// multiple of the alignment.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};
// Elements of T in 16 bytes; 8 bytes of u8, whose unpacked values would fill too many registers.
template <class T>
inline constexpr int kPackSize = sizeof(T) == 1 ? 8 : static_cast<int>(16 / sizeof(T));

template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T* address) {
  return *reinterpret_cast<const Pack<T, N>*>(address);
}
template <int N, class T>
__device__ inline void store_pack(T* address, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(address) = pack;
}

// Number of the running thread in its grid.
__device__ inline std::int64_t grid_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
// Threads [0, packs) of a grid have a pack of N elements each, the ones behind them have one element: which one.
template <int N>
__device__ inline std::int64_t single_element(std::int64_t thread, std::int64_t packs) {
  return packs * N + (thread - packs);
}

}  // namespace heddle::cuda
