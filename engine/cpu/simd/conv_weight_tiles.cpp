// Inner kernels of the weight gradient: sums stay in registers over all pixels of a tile. Sums are read from and
// written to memory once a tile, which costs a few percent of it.
#include "conv_weight.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

HEDDLE_INLINE void add_to(float* p, Vec v) { store(p, load(p) + v); }

// Per pixel V loads and C broadcasts feed C * V multiply-adds.
template <int V, int C>
void patch_tile(const PatchTile& tile) {
  Vec sum[C][V];
  HEDDLE_UNROLL
  for (int c = 0; c < C; ++c) {
    HEDDLE_UNROLL
    for (int v = 0; v < V; ++v) sum[c][v] = Vec{};
  }
  const float* dy = tile.dy;
  for (std::int64_t image = 0; image < tile.images; ++image) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      const float* x = tile.x + image * tile.image_x + row * tile.row_x;
      for (std::int64_t column = 0; column < tile.columns; ++column, x += tile.column_x, dy += tile.channels) {
        Vec in[V];
        HEDDLE_UNROLL
        for (int v = 0; v < V; ++v) in[v] = load(x + v * kLanes);
        HEDDLE_UNROLL
        for (int c = 0; c < C; ++c) {
          const Vec gradient = broadcast(dy[c]);
          HEDDLE_UNROLL
          for (int v = 0; v < V; ++v) sum[c][v] += in[v] * gradient;
        }
      }
    }
  }
  HEDDLE_UNROLL
  for (int c = 0; c < C; ++c) {
    HEDDLE_UNROLL
    for (int v = 0; v < V; ++v) add_to(tile.sum + c * tile.sum_stride + v * kLanes, sum[c][v]);
  }
}

// Per pixel C + K loads feed C * K multiply-adds.
template <int C, int K>
void lane_tile(const PatchTile& tile) {
  Vec sum[C][K];
  HEDDLE_UNROLL
  for (int c = 0; c < C; ++c) {
    HEDDLE_UNROLL
    for (int k = 0; k < K; ++k) sum[c][k] = Vec{};
  }
  const float* dy = tile.dy;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const float* x = tile.x + row * tile.row_x;
    for (std::int64_t column = 0; column < tile.columns; ++column, x += tile.column_x, dy += tile.channels) {
      Vec in[K];
      HEDDLE_UNROLL
      for (int k = 0; k < K; ++k) in[k] = load(x + k * kLanes);
      HEDDLE_UNROLL
      for (int c = 0; c < C; ++c) {
        const Vec gradient = load(dy + c * kLanes);
        HEDDLE_UNROLL
        for (int k = 0; k < K; ++k) sum[c][k] += in[k] * gradient;
      }
    }
  }
  HEDDLE_UNROLL
  for (int c = 0; c < C; ++c) {
    HEDDLE_UNROLL
    for (int k = 0; k < K; ++k) add_to(tile.sum + c * tile.sum_stride + k * kLanes, sum[c][k]);
  }
}

}  // namespace

#if HEDDLE_SIMD_LANES == 16
#define HEDDLE_PATCH6(v) \
  nullptr, patch_tile<v, 1>, patch_tile<v, 2>, patch_tile<v, 3>, patch_tile<v, 4>, patch_tile<v, 5>, patch_tile<v, 6>
#define HEDDLE_PATCH8(v) HEDDLE_PATCH6(v), patch_tile<v, 7>, patch_tile<v, 8>
#define HEDDLE_PATCH12(v) HEDDLE_PATCH8(v), patch_tile<v, 9>, patch_tile<v, 10>, patch_tile<v, 11>, patch_tile<v, 12>
const TileFunction kPatchFunctions[kMaxPatchVectors][kMaxPatchChannels + 1] = {
    {HEDDLE_PATCH12(1)}, {HEDDLE_PATCH12(2)}, {HEDDLE_PATCH8(3)}, {HEDDLE_PATCH6(4)}};
#define HEDDLE_LANE(c) \
  lane_tile<c, 1>, lane_tile<c, 2>, lane_tile<c, 3>, lane_tile<c, 4>, lane_tile<c, 5>, lane_tile<c, 6>
const TileFunction kLaneFunctions[kMaxLaneChannels][kMaxLaneTaps] = {
    {HEDDLE_LANE(1)}, {HEDDLE_LANE(2)}, {HEDDLE_LANE(3)}, {HEDDLE_LANE(4)}};
#else
#define HEDDLE_PATCH4(v) nullptr, patch_tile<v, 1>, patch_tile<v, 2>, patch_tile<v, 3>, patch_tile<v, 4>
#define HEDDLE_PATCH6(v) HEDDLE_PATCH4(v), patch_tile<v, 5>, patch_tile<v, 6>
const TileFunction kPatchFunctions[kMaxPatchVectors][kMaxPatchChannels + 1] = {
    {HEDDLE_PATCH6(1), patch_tile<1, 7>, patch_tile<1, 8>}, {HEDDLE_PATCH6(2)}, {HEDDLE_PATCH4(3)}};
#define HEDDLE_LANE(c) lane_tile<c, 1>, lane_tile<c, 2>, lane_tile<c, 3>
const TileFunction kLaneFunctions[kMaxLaneChannels][kMaxLaneTaps] = {
    {HEDDLE_LANE(1)}, {HEDDLE_LANE(2)}, {HEDDLE_LANE(3)}};
#endif

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
