// One 2x2 window of the pooling behind a convolution, in registers. Rules of ties, NaN and order of sums are those of
// max_pool.cpp and avg_pool.cpp. The code of a window has bit 2 * row + column set where the gradient goes.
#pragma once

#include "kernels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

HEDDLE_INLINE Vec int_bits(std::int32_t value) { return as_float(value - IntVec{}); }

HEDDLE_INLINE void max_of_window(const Vec* in, bool with_relu, Vec* y, Vec* code) {
  Vec best = with_relu ? Vec{} : in[0];
  Vec bit = with_relu ? Vec{} : int_bits(1);
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const IntVec better = (in[i] > best) | (in[i] != in[i]);
    best = select(better, in[i], best);
    bit = select(better, int_bits(1 << i), bit);
  }
  *y = best;
  *code = bit;
}

// The inputs are already max(., 0) if there is a ReLU; its gradient passes where they are above 0.
HEDDLE_INLINE void average_of_window(const Vec* in, bool with_relu, Vec* y, Vec* code) {
  IntVec bits = 15 - IntVec{};
  if (with_relu) {
    bits = IntVec{};
    HEDDLE_UNROLL
    for (int i = 0; i < 4; ++i) bits |= (in[i] > Vec{}) & (1 << i);
  }
  *y = (in[0] + in[1] + in[2] + in[3]) * 0.25f;
  *code = as_float(bits);
}

// What one element of a window gets of the pooled gradient, and the factor that the gradient has in common.
HEDDLE_INLINE Vec gradient_in_window(Vec dy, IntVec code, int element) {
  const IntVec receives = (code << (31 - element)) >> 31;  // needs no constants in registers
  return as_float(as_int(dy) & receives);
}
HEDDLE_INLINE float pool_share(PoolAfter pool) { return pool == PoolAfter::kAverage ? 0.25f : 1.0f; }

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
