// Vectors of floats for the kernels of this folder. Every file here is compiled once per instruction set, each time in
// a namespace of its own, so nothing in it may come from the standard library: the linker keeps one copy of an inline
// function, and that copy could hold instructions the machine does not have.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && (defined(__AVX512F__) || defined(__AVX2__))
#include <immintrin.h>
#endif

#ifndef HEDDLE_SIMD_NAMESPACE
#error "HEDDLE_SIMD_NAMESPACE names the instruction set this file is compiled for"
#endif

#if defined(__clang__)
#define HEDDLE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HEDDLE_UNROLL _Pragma("GCC unroll 32")
#endif
#define HEDDLE_INLINE inline __attribute__((always_inline))

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HEDDLE_SIMD_LANES 16
constexpr int kRegisters = 32;
#elif defined(__AVX2__) && defined(__FMA__)
#define HEDDLE_SIMD_LANES 8
constexpr int kRegisters = 16;
#else
#define HEDDLE_SIMD_LANES 4
constexpr int kRegisters = 16;
#endif
constexpr int kLanes = HEDDLE_SIMD_LANES;

typedef float Vec __attribute__((vector_size(HEDDLE_SIMD_LANES * 4)));
typedef std::int32_t IntVec __attribute__((vector_size(HEDDLE_SIMD_LANES * 4)));
typedef float UnalignedVec __attribute__((vector_size(HEDDLE_SIMD_LANES * 4), aligned(4), may_alias));
typedef std::int32_t UnalignedIntVec __attribute__((vector_size(HEDDLE_SIMD_LANES * 4), aligned(4), may_alias));

HEDDLE_INLINE Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
HEDDLE_INLINE void store(float* p, Vec v) { *reinterpret_cast<UnalignedVec*>(p) = v; }
// s - 0, not 0 + s: exact for -0 too, so that the compiler drops the arithmetic.
HEDDLE_INLINE Vec broadcast(float s) { return s - Vec{}; }
HEDDLE_INLINE IntVec as_int(Vec v) { return reinterpret_cast<IntVec>(v); }
HEDDLE_INLINE Vec as_float(IntVec v) { return reinterpret_cast<Vec>(v); }
// Lanes of a where the mask (0 or -1) is set, else of b.
HEDDLE_INLINE Vec select(IntVec mask, Vec a, Vec b) { return mask ? a : b; }
// max(v, 0) that keeps NaN.
HEDDLE_INLINE Vec relu(Vec v) {
#if HEDDLE_SIMD_LANES == 8  // The instruction is defined as 0 > v ? 0 : v; compilers make two of the comparison.
  return _mm256_max_ps(Vec{}, v);
#else
  return v < Vec{} ? Vec{} : v;
#endif
}

// The first n lanes (n < kLanes) from memory, others 0; reads nothing behind p + n.
HEDDLE_INLINE Vec load_first(const float* p, std::int64_t n) {
#if HEDDLE_SIMD_LANES == 16
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p);
#else
  float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
#endif
}

// Writes the first n lanes (n < kLanes) only.
HEDDLE_INLINE void store_first(float* p, Vec v, std::int64_t n) {
#if HEDDLE_SIMD_LANES == 16
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), v);
#else
  float lanes[kLanes];
  store(lanes, v);
  for (std::int64_t i = 0; i < n; ++i) p[i] = lanes[i];
#endif
}

// Sum of the lanes, pairwise, in one fixed order.
HEDDLE_INLINE float sum_lanes(Vec v) {
  float lanes[kLanes];
  store(lanes, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

HEDDLE_INLINE std::int64_t min64(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
HEDDLE_INLINE std::int64_t max64(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
// Quotient rounded up, for a >= 0 and b > 0.
HEDDLE_INLINE std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
HEDDLE_INLINE std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
