// Chooses tiles and splits of tile_gemm_kernel and starts it: shared by the units of matrix products and convolutions.
// Only .cu files include it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/tile_gemm.cuh"
#include "kernels/launch/launch.h"
#include "kernels/launch/matrix_kernels.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {

struct TileSizes {
  std::int64_t batch = 1, rows = 0, columns = 0, depth = 0;
};

// Blocks that keep a large GPU busy. A constant, so that sums do not depend on the model of the GPU.
inline constexpr std::int64_t kBusyBlocks = 264;
inline constexpr std::int64_t kMaxGridZ = 65535;

inline std::int64_t tile_count(std::int64_t rows, std::int64_t columns, std::int64_t tile) {
  return ((rows + tile - 1) / tile) * ((columns + tile - 1) / tile);
}
inline bool large_tiles(const TileSizes& s) {
  return s.rows > 32 && s.columns > 32 && s.batch * tile_count(s.rows, s.columns, 64) >= kBusyBlocks;
}

// Splits the sums where there are too few tiles to fill the GPU, but not below four steps of a sum.
inline SplitPlan plan_tiles(const TileSizes& s) {
  const bool large = large_tiles(s);
  const std::int64_t tile = large ? 64 : 32, step = large ? 16 : 32;
  const std::int64_t tiles = s.batch * tile_count(s.rows, s.columns, tile);
  const std::int64_t steps = (s.depth + step - 1) / step;
  const std::int64_t splits =
      tiles == 0 || tiles > kMaxTickets ? 1 : std::min((kBusyBlocks + tiles - 1) / tiles, steps / 4);
  if (splits <= 1) return {};
  return {static_cast<int>(splits), tiles * splits * (tile * tile + tile), tiles};
}

// All device memory of a call beside bias, mask and scratch.
struct TileAccesses {
  Access a, b, y;
};

template <class Tile, class T, class A, class B>
void launch_tiles(const char* name, const A& a, const B& b, const device::GemmOutput<T>& out, const TileSizes& s,
                  const SplitScratch& scratch, const TileAccesses& accesses, cudaStream_t stream) {
  const std::int64_t splits = scratch.plan.splits;
  const std::int64_t y_count = s.batch * s.rows * s.columns;
  const std::int64_t bias_count = (s.batch - 1) * out.bias_stride_z + s.columns;
  Access row_sums = writes(out.row_sums, s.batch * s.rows);
  row_sums.read = out.add != 0;
  const auto rows = static_cast<int>(s.rows), columns = static_cast<int>(s.columns), depth = static_cast<int>(s.depth);
  const LaunchShape shape{dim3(static_cast<unsigned>(tile_count(s.rows, s.columns, Tile::kRows)),
                               static_cast<unsigned>(splits), static_cast<unsigned>(s.batch)),
                          dim3(device::kGemmThreads)};
  launch(name, device::tile_gemm_kernel<Tile, T, A, B>, shape, stream,
         {accesses.a, accesses.b, accesses.y, reads(out.bias, bias_count), reads(out.relu_mask, y_count), row_sums,
          updates(scratch.partials, scratch.plan.partial_floats), updates(scratch.tickets, scratch.plan.tickets)},
         a, b, out, device::GemmSizes{rows, columns, depth, static_cast<int>(splits)},
         device::GemmSplit{scratch.partials, scratch.tickets});
}

template <class T, class A, class B>
void tile_gemm(const char* name, const A& a, const B& b, const device::GemmOutput<T>& out, const TileSizes& sizes,
               const SplitScratch& scratch, const TileAccesses& accesses, cudaStream_t stream) {
  if (sizes.batch * sizes.rows * sizes.columns == 0) return;
  if (large_tiles(sizes)) {
    launch_tiles<device::LargeGemmTile>(name, a, b, out, sizes, scratch, accesses, stream);
  } else {
    launch_tiles<device::SmallGemmTile>(name, a, b, out, sizes, scratch, accesses, stream);
  }
}

// Whether four elements at any multiple of four from data on can be moved at once; null is aligned.
template <class T>
bool fours_aligned(const T* data) {
  return is_aligned(data, 4 * sizeof(T));
}
// The output's and its companions' pointers allow wide moves.
template <class T>
bool is_wide(const device::GemmOutput<T>& out) {
  return out.ld % 4 == 0 && out.stride_z % 4 == 0 && out.bias_stride_z % 4 == 0 && fours_aligned(out.y) &&
         fours_aligned(out.bias) && fours_aligned(out.relu_mask);
}

}  // namespace heddle::cuda
