// Permutes the dimensions of an array. U: an unsigned type of the element's size, or units of up to 16 bytes of rows
// that stay in one piece. Deterministic.
#pragma once

#include "kernels/device/divider.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// Dimensions of y, innermost first, with the step along each in x and in y.
struct PermutePlan {
  static constexpr int kMaxRank = 8;
  int rank = 0;
  Divider dims[kMaxRank];
  std::int64_t x_steps[kMaxRank] = {};
  std::int64_t y_steps[kMaxRank] = {};

  // Where element i (in the order of these dimensions) lies in x and y.
  __device__ void locate(std::int64_t i, std::int64_t& in_x, std::int64_t& in_y) const {
    in_x = in_y = 0;
    // Constant indices, so that the plan stays in the constant bank.
    for (int d = 0; d < kMaxRank; ++d) {
      if (d < rank) {
        const std::int64_t rest = dims[d].divide(i), index = i - rest * dims[d].value();
        in_x += index * x_steps[d];
        in_y += index * y_steps[d];
        i = rest;
      }
    }
  }
};

// One thread: one unit of y. Grid: one thread each. Blocks of 256. Bytes a unit: one read, one written.
template <class U>
__global__ void permute_kernel(const U* x, PermutePlan plan, std::int64_t count, U* y) {
  const std::int64_t i = grid_thread();
  if (i >= count) return;
  std::int64_t from, to;
  plan.locate(i, from, to);
  y[to] = x[from];
}

inline constexpr int kTile = 32;
inline constexpr int kTileRows = 8;

// The two dimensions that a tile covers: `across` is contiguous in x, `along` in y.
struct TilePlan {
  std::int64_t across, along;
  std::int64_t x_step, y_step;  // of along in x, of across in y
  Divider across_tiles, along_tiles;
  PermutePlan others;
};

// One block: a tile of 32 x 32 elements, read along x and written along y through shared memory, four elements a
// thread. Blocks of (32, 8); grid: tiles. Bytes an element: one read, one written.
template <class U>
__global__ void __launch_bounds__(kTile* kTileRows) permute_tiles_kernel(const U* x, TilePlan plan, U* y) {
  // One more column, so that a column's elements lie in different banks.
  __shared__ U tile[kTile][kTile + 1];
  std::int64_t along = blockIdx.x;
  std::int64_t across = plan.along_tiles.split(along);
  const std::int64_t other = plan.across_tiles.split(across);
  std::int64_t from, to;
  plan.others.locate(other, from, to);
  along *= kTile;
  across *= kTile;
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  for (int r = ty; r < kTile; r += kTileRows) {
    if (across + tx < plan.across && along + r < plan.along) {
      tile[r][tx] = x[from + (across + tx) + (along + r) * plan.x_step];
    }
  }
  __syncthreads();
  for (int r = ty; r < kTile; r += kTileRows) {
    if (along + tx < plan.along && across + r < plan.across) {
      y[to + (across + r) * plan.y_step + (along + tx)] = tile[tx][r];
    }
  }
}

}  // namespace heddle::cuda
