// Sizes and inner kernels of the weight gradient of a convolution.
#pragma once

#include "conv_lanes.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

// Input rows and columns that the windows cover, padding included.
HEDDLE_INLINE std::int64_t cover_h(const ConvShape& s) {
  return max64((s.out_h - 1) * s.stride_h + s.kernel_h, s.pad_h);
}
HEDDLE_INLINE std::int64_t cover_w(const ConvShape& s) {
  return max64((s.out_w - 1) * s.stride_w + s.kernel_w, s.pad_w);
}

// One kernel row of one output channel in a partial buffer: [oc][kh][partial_row_floats], then [oc] of the bias.
HEDDLE_INLINE std::int64_t partial_row_floats(const ConvShape& s) { return round_up(s.kernel_w * s.in_c, kLanes); }

// Whether the floats under one kernel row fill at least 70 % of the lanes they need.
HEDDLE_INLINE bool patch_fills_lanes(const ConvShape& s) {
  return s.kernel_w * s.in_c * 10 >= partial_row_floats(s) * 7;
}

// Rows of dy in lanes at a time: about 16 KB, so that they stay in the first-level cache with the rows of x. An even
// number, so that a pooled row is never cut.
HEDDLE_INLINE std::int64_t lane_block_rows(const ConvShape& s) {
  return max64(2, 4096 / (s.out_w * s.out_c * kLanes + 1) / 2 * 2);
}

// sum[c][.] += over images, rows and columns: dy[pixel][c] * x[pixel][.]; strides count floats. The pixels of dy follow
// each other through all of them.
struct PatchTile {
  const float* x;
  std::int64_t image_x, row_x, column_x;
  const float* dy;
  std::int64_t channels;  // floats between the pixels of dy
  std::int64_t images, rows, columns;
  float* sum;
  std::int64_t sum_stride;  // floats between the channels of sum
};

using TileFunction = void (*)(const PatchTile&);

constexpr int kMaxPatchVectors = kRegisters == 32 ? 4 : 3;
constexpr int kMaxPatchChannels = kRegisters == 32 ? 12 : 8;
// Output channels of a tile with this many vectors; the sums, the vectors and one value of dy fill the registers.
HEDDLE_INLINE std::int64_t max_patch_channels(std::int64_t vectors) {
  if (kRegisters == 32) return vectors <= 2 ? 12 : vectors == 3 ? 8 : 6;
  return vectors == 1 ? 8 : vectors == 2 ? 6 : 4;
}
// [vectors - 1][channels]; dy is broadcast, x are neighbouring floats.
extern const TileFunction kPatchFunctions[kMaxPatchVectors][kMaxPatchChannels + 1];

// Floats of the strip of one image: for each row and column of windows, the vectors under the window's row.
HEDDLE_INLINE std::int64_t strip_numel(const ConvShape& s, std::int64_t vectors) {
  return cover_h(s) * s.out_w * vectors * kLanes;
}
// Images whose pixels a tile runs over before it stores its sums: more make that rarer, but their strips have to stay
// in the first-level cache. There are no strips where pooling leaves no window.
HEDDLE_INLINE std::int64_t patch_images(const ConvShape& s) {
  return max64(1, min64(8, 6144 / max64(1, strip_numel(s, kMaxPatchVectors))));
}

constexpr int kMaxLaneChannels = kRegisters == 32 ? 4 : 3;
constexpr int kMaxLaneTaps = kRegisters == 32 ? 6 : 3;
// [channels - 1][taps - 1]; dy and x are both in lanes.
extern const TileFunction kLaneFunctions[kMaxLaneChannels][kMaxLaneTaps];

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
