// The 2x2 pooling that a convolution pass does on the fly, while values are in lanes: the large array between the two
// is never written. Per pooled element one byte, the pool code, says which of its four inputs receive the gradient.
#pragma once

#include "conv_lanes.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

// The convolution restricted to the outputs that some 2x2 window covers.
HEDDLE_INLINE ConvShape pooled_part(const ConvShape& s, PoolAfter pool) {
  ConvShape part = s;
  if (pool != PoolAfter::kNone) {
    part.out_h = s.out_h / 2 * 2;
    part.out_w = s.out_w / 2 * 2;
  }
  return part;
}

// Pools one window in lanes, [4][numel], into y[numel]; code[numel] holds integers.
void pool_lane_window(const ConvForward& args, const float* window, std::int64_t numel, float* y, float* code);

// The gradient of `pooled_rows` rows of the pooled output, spread over twice as many rows of the convolution's output:
// [2 * pooled_rows][part.out_w][out_c][width]. dy and code point at the first row of the first image. scratch: one row
// of part's output in lanes.
struct PooledRows {
  const float* dy;
  const std::uint8_t* code;
  PoolAfter pool;
  std::int64_t images;
  std::int64_t image_stride;  // elements of a whole pooled image
  std::int64_t pooled_rows;
};
void spread_lane_rows(const ConvShape& part, const PooledRows& pooled, std::int64_t width, float* out, float* scratch);

// The same for one image in (H,W,C).
void spread_image(const ConvShape& part, const PooledRows& pooled, float* out);

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
