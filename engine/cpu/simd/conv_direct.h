// Output channels in lanes: the pooled convolution of a first layer, one input channel and windows of 3x3. So few
// multiply-adds belong to a pixel that bringing images into lanes costs more than they do; here nothing is transposed,
// the nine weights (or their gradients) of kLanes channels stay in registers, and pooling is done there too.
#pragma once

#include "conv_lanes.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

constexpr int kDirectTaps = 9;

// Vectors of output channels. The last one ends with the last channel: it overlaps the one before it, and makes the
// same values of the channels in common once more.
HEDDLE_INLINE std::int64_t direct_vectors(const ConvShape& s) { return ceil_div(s.out_c, kLanes); }
HEDDLE_INLINE std::int64_t direct_first_channel(const ConvShape& s, std::int64_t vector) {
  return min64(vector * kLanes, s.out_c - kLanes);
}

// Whether the shape is of this kind, its windows stay inside the input, and the channels fill at least 70 % of the
// lanes they need.
HEDDLE_INLINE bool direct_applies(const ConvShape& s, PoolAfter pool) {
  return pool != PoolAfter::kNone && s.in_c == 1 && s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 1 &&
         s.stride_w == 1 && s.pad_h == 0 && s.pad_w == 0 && s.out_h + 2 <= s.in_h && s.out_w + 2 <= s.in_w &&
         s.out_c >= kLanes && s.out_c * 10 >= direct_vectors(s) * kLanes * 7;
}

// Scratch of either pass: nine weights or sums, and a bias, of each vector.
HEDDLE_INLINE std::int64_t direct_scratch_floats(const ConvShape& s) {
  return direct_vectors(s) * (kDirectTaps + 1) * kLanes;
}

void direct_forward(const ConvShape& s, const ConvForward& args, Range images);
// Stores all of args.partial that conv_reduce_partials reads.
void direct_gradient(const ConvShape& s, const ConvBackwardWeight& args, Range images);

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
