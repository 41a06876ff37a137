// What the convolution passes share: the blocking of channels and the inner kernel with images in lanes.
#pragma once

#include "kernels.h"
#include "lanes.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

// Images of one pass of the inner kernel: two vectors, so that one broadcast weight feeds two multiply-adds.
constexpr std::int64_t kImageBlock = 2 * kLanes;
// Channels of one block: 2 * kMaxChannelBlock accumulators, two inputs and one weight fit the registers.
constexpr int kMaxChannelBlock = kRegisters == 32 ? 13 : 6;

// `channels` cut into as few blocks as possible, of sizes that differ by at most one, the larger ones first.
struct ChannelBlocks {
  std::int64_t count;
  std::int64_t small;   // size of the later blocks
  std::int64_t larger;  // number of leading blocks that have one channel more
};

HEDDLE_INLINE ChannelBlocks channel_blocks(std::int64_t channels, std::int64_t largest) {
  const std::int64_t count = ceil_div(channels, largest);
  return {count, channels / count, channels % count};
}
HEDDLE_INLINE std::int64_t block_size(const ChannelBlocks& blocks, std::int64_t block) {
  return blocks.small + (block < blocks.larger ? 1 : 0);
}

// The sum over rows, segments and elements of a[element] * w[element][channel] for one output pixel: a has `width`
// lanes per element, w has one block of channels per element. Offsets count elements.
struct Taps {
  const float* a;
  const float* w;
  std::int64_t rows, row_a, row_w;
  std::int64_t segments, segment_a, segment_w;
  std::int64_t length;
  const float* bias;  // of the block, or null
  bool relu;
  float* out;  // [channel][width]
};

// Multiply-adds of one output pixel for C channels of V vectors of images. Per element: V loads and C broadcasts feed
// C * V multiply-adds.
template <int C, int V>
void accumulate_taps(const Taps& taps) {
  Vec sum[C][V];
  HEDDLE_UNROLL
  for (int c = 0; c < C; ++c) {
    const Vec start = taps.bias != nullptr ? broadcast(taps.bias[c]) : Vec{};
    HEDDLE_UNROLL
    for (int v = 0; v < V; ++v) sum[c][v] = start;
  }
  for (std::int64_t row = 0; row < taps.rows; ++row) {
    for (std::int64_t segment = 0; segment < taps.segments; ++segment) {
      const float* a = taps.a + (row * taps.row_a + segment * taps.segment_a) * (V * kLanes);
      const float* w = taps.w + (row * taps.row_w + segment * taps.segment_w) * C;
      for (std::int64_t k = 0; k < taps.length; ++k, a += V * kLanes, w += C) {
        Vec in[V];
        HEDDLE_UNROLL
        for (int v = 0; v < V; ++v) in[v] = load(a + v * kLanes);
        HEDDLE_UNROLL
        for (int c = 0; c < C; ++c) {
          const Vec weight = broadcast(w[c]);
          HEDDLE_UNROLL
          for (int v = 0; v < V; ++v) sum[c][v] += in[v] * weight;
        }
      }
    }
  }
  HEDDLE_UNROLL
  for (int c = 0; c < C; ++c) {
    HEDDLE_UNROLL
    for (int v = 0; v < V; ++v) {
      store(taps.out + (c * V + v) * kLanes, taps.relu ? relu(sum[c][v]) : sum[c][v]);
    }
  }
}

using TapsFunction = void (*)(const Taps&);
// Entry [c][v - 1] handles c channels and v vectors of images.
extern const TapsFunction kTapsFunctions[kMaxChannelBlock + 1][2];

HEDDLE_INLINE std::int64_t input_numel(const ConvShape& s) { return s.in_h * s.in_w * s.in_c; }
HEDDLE_INLINE std::int64_t output_numel(const ConvShape& s) { return s.out_h * s.out_w * s.out_c; }

// First kernel index >= 0 whose input index, start + kernel index, is >= 0; and the first behind the input.
HEDDLE_INLINE std::int64_t first_tap(std::int64_t start) { return max64(0, -start); }
HEDDLE_INLINE std::int64_t last_tap(std::int64_t start, std::int64_t kernel, std::int64_t size) {
  return max64(first_tap(start), min64(kernel, size - start));
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
