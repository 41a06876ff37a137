// The matrix product y = epilogue(A B) by tiles in shared memory, for every shape: own linear layers, and own
// convolutions of any kind, whose operands compute addresses as they are read (conv2d_operands.cuh). Products and sums
// are in float, in a fixed order.
#pragma once

#include "vector4.cuh"

namespace heddle::cuda::device {

constexpr int kGemmThreads = 256;

// How a block of 256 threads cuts its work: a tile of kRows x kColumns results, kDepth steps of the sum at a time,
// kGroups groups of threads that take every kGroups-th step. A thread sums 4x4 results.
template <int kRows_, int kColumns_, int kDepth_, int kGroups_>
struct GemmTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kDepth = kDepth_, kGroups = kGroups_;
  // That run on a multiprocessor at the same time, which limits registers; more would spill them.
  static constexpr int kBlocks = 2;
  static constexpr int kGroupThreads = kGemmThreads / kGroups;
  static_assert(kRows * kColumns == kGroupThreads * 16 && kRows * kDepth == kGemmThreads * 4 &&
                kColumns * kDepth == kGemmThreads * 4);
};
// For few results: waiting for memory and for each other is what costs.
using SmallGemmTile = GemmTile<32, 32, 32, 4>;
using LargeGemmTile = GemmTile<64, 64, 16, 1>;

// An operand is seen as rows of sums: element (row, k), where `row` counts the results' rows for A and their columns
// for B. at(row, z) gives a cursor; load(cursor, k) gives four neighbours, along k if kAlongK (one row), else along the
// rows (row to row + 3); elements outside are zero. z counts the matrices of a batch or the groups of a convolution.
//
// A plain matrix: element (row, k) at data[z * stride_z + row * ld + k] if along k, else data[z * stride_z + k * ld +
// row].
template <class T, bool kAlong>
struct PlainOperand {
  static constexpr bool kAlongK = kAlong;
  const T* data;
  long long ld, stride_z;
  int rows, depth;
  int wide;  // addresses of four neighbours that begin at a multiple of four are aligned

  struct Cursor {
    const T* data;
    int left;  // rows from here on
  };
  __device__ Cursor at(int row, int z) const {
    const T* const matrix = data + z * stride_z;
    return {kAlong ? matrix + row * ld : matrix + row, rows - row};
  }
  __device__ Four load(const Cursor& cursor, int k) const {
    if (cursor.left <= 0 || k >= depth) return {};
    if (kAlong) return load_up_to_four(cursor.data + k, depth - k, wide != 0);
    return load_up_to_four(cursor.data + k * ld, cursor.left, wide != 0);
  }
};

// What happens to the sums: result (row, column) of z goes to y[z * stride_z + row * ld + column].
template <class T>
struct GemmOutput {
  T* y;
  const T* bias;       // one for each column, or null; z advances by bias_stride_z
  const T* relu_mask;  // laid out as y, or null: the result is 0 where it is not positive
  T* row_sums;         // or null: (=|+=) sum over k of A's row; z advances by the number of rows
  long long ld, stride_z, bias_stride_z;
  int relu;  // of the result with its bias
  int add;   // to what y and row_sums hold
  int wide;
};

struct GemmSizes {
  int rows, columns, depth;
  int splits;  // blocks that share the sum of one tile
};

// One result that several blocks share: each leaves its part here, the last to come adds them up in order.
struct GemmSplit {
  float* partials;    // (z, tile, split, rows * columns + rows of a tile)
  unsigned* tickets;  // one for each z and tile; zero before and after
};

// The sums of a block's tile and of its rows of A, as they lie in the registers of the threads at the end: thread t
// holds columns 4 * (t % (kColumns / 4)) to + 3 of kOwnRows rows from t / (kColumns / 4) * kOwnRows on.
template <class Tile>
struct GemmSums {
  static constexpr int kColumnThreads = Tile::kColumns / 4;
  static constexpr int kOwnRows = 4 / Tile::kGroups;
  float value[kOwnRows][4];
  float row_sum;  // of row t, in threads below kRows
  __device__ static int row(int thread) { return thread / kColumnThreads * kOwnRows; }
  __device__ static int column(int thread) { return thread % kColumnThreads * 4; }
};

// Sums the steps [first, last) of kDepth each of one tile.
template <class Tile, class A, class B>
__device__ inline GemmSums<Tile> gemm_tile_sums(const A& a, const B& b, int row0, int column0, int z, int first,
                                                int last, bool want_row_sums) {
  constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns, kDepth = Tile::kDepth, kGroups = Tile::kGroups;
  constexpr int kPad = 4;
  __shared__ __align__(16) float a_tile[kDepth][kRows + kPad];
  __shared__ __align__(16) float b_tile[kDepth][kColumns + kPad];
  const int t = static_cast<int>(threadIdx.x);
  // Which four elements of the tiles this thread brings.
  const int a_row = A::kAlongK ? t / (kDepth / 4) : t % (kRows / 4) * 4;
  const int a_depth = A::kAlongK ? t % (kDepth / 4) * 4 : t / (kRows / 4);
  const int b_row = B::kAlongK ? t / (kDepth / 4) : t % (kColumns / 4) * 4;
  const int b_depth = B::kAlongK ? t % (kDepth / 4) * 4 : t / (kColumns / 4);
  const auto a_cursor = a.at(row0 + a_row, z);
  const auto b_cursor = b.at(column0 + b_row, z);
  // Which results it sums, and in which group.
  const int group = t / Tile::kGroupThreads, member = t % Tile::kGroupThreads;
  const int row = member / (kColumns / 4) * 4, column = member % (kColumns / 4) * 4;

  float sums[4][4] = {};
  float row_sum = 0;
  Four next_a = {}, next_b = {};
  if (first < last) {
    next_a = a.load(a_cursor, first * kDepth + a_depth);
    next_b = b.load(b_cursor, first * kDepth + b_depth);
  }
  for (int step = first; step < last; ++step) {
    if (A::kAlongK) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a_tile[a_depth + i][a_row] = next_a.v[i];
    } else {
      store_four(&a_tile[a_depth][a_row], next_a);
    }
    if (B::kAlongK) {
#pragma unroll
      for (int i = 0; i < 4; ++i) b_tile[b_depth + i][b_row] = next_b.v[i];
    } else {
      store_four(&b_tile[b_depth][b_row], next_b);
    }
    __syncthreads();
    if (step + 1 < last) {
      next_a = a.load(a_cursor, (step + 1) * kDepth + a_depth);
      next_b = b.load(b_cursor, (step + 1) * kDepth + b_depth);
    }
#pragma unroll 4
    for (int k = group; k < kDepth; k += kGroups) {
      const Four left = load_four(&a_tile[k][row]), right = load_four(&b_tile[k][column]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += left.v[i] * right.v[j];
      }
    }
    if (want_row_sums && t < kRows) {
      for (int k = 0; k < kDepth; ++k) row_sum += a_tile[k][t];
    }
    __syncthreads();
  }

  GemmSums<Tile> result;
  result.row_sum = row_sum;
  if constexpr (kGroups == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) result.value[i][j] = sums[i][j];
    }
  } else {
    static_assert(kGroups == 4, "four threads share four rows");
    __shared__ __align__(16) float group_sums[kGroups][kRows][kColumns];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store_four(&group_sums[group][row + i][column], {{sums[i][0], sums[i][1], sums[i][2], sums[i][3]}});
    }
    __syncthreads();
    Four total = {};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const Four part = load_four(&group_sums[g][GemmSums<Tile>::row(t)][GemmSums<Tile>::column(t)]);
#pragma unroll
      for (int j = 0; j < 4; ++j) total.v[j] += part.v[j];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) result.value[0][j] = total.v[j];
  }
  return result;
}

// Leaves this block's sums for the last block of the tile. Returns true in that block, with the sums of all.
template <class Tile>
__device__ inline bool gemm_join_splits(GemmSums<Tile>& sums, const GemmSplit& split, int tile, int splits) {
  constexpr int kResults = Tile::kRows * Tile::kColumns, kPartial = kResults + Tile::kRows;
  const int t = static_cast<int>(threadIdx.x);
  float* const parts = split.partials + static_cast<long long>(tile) * splits * kPartial;
  const int place = GemmSums<Tile>::row(t) * Tile::kColumns + GemmSums<Tile>::column(t);
  float* const own = parts + static_cast<long long>(blockIdx.y) * kPartial;
#pragma unroll
  for (int i = 0; i < GemmSums<Tile>::kOwnRows; ++i) {
    store_four(own + place + i * Tile::kColumns,
               {{sums.value[i][0], sums.value[i][1], sums.value[i][2], sums.value[i][3]}});
  }
  if (t < Tile::kRows) own[kResults + t] = sums.row_sum;
  __threadfence();
  __syncthreads();
  __shared__ int is_last;
  if (t == 0) {
    is_last = atomicAdd(&split.tickets[tile], 1u) == static_cast<unsigned>(splits - 1) ? 1 : 0;
    if (is_last != 0) split.tickets[tile] = 0;
  }
  __syncthreads();
  if (is_last == 0) return false;
  __threadfence();
  sums = {};
  for (int s = 0; s < splits; ++s) {
    const float* const part = parts + static_cast<long long>(s) * kPartial;
#pragma unroll
    for (int i = 0; i < GemmSums<Tile>::kOwnRows; ++i) {
      const Four four = load_four(part + place + i * Tile::kColumns);
#pragma unroll
      for (int j = 0; j < 4; ++j) sums.value[i][j] += four.v[j];
    }
    if (t < Tile::kRows) sums.row_sum += part[kResults + t];
  }
  return true;
}

template <class T>
__device__ inline void gemm_write(const GemmOutput<T>& out, int row, int column, int z, int columns, Four four) {
  const long long place = z * out.stride_z + row * out.ld + column;
  const int count = columns - column;
  const bool wide = out.wide != 0;
  if (out.bias != nullptr) {
    const Four bias = load_up_to_four(out.bias + z * out.bias_stride_z + column, count, wide);
#pragma unroll
    for (int j = 0; j < 4; ++j) four.v[j] += bias.v[j];
  }
  if (out.relu != 0) {
#pragma unroll
    for (int j = 0; j < 4; ++j) four.v[j] = four.v[j] < 0 ? 0.0f : four.v[j];
  }
  if (out.relu_mask != nullptr) {
    const Four mask = load_up_to_four(out.relu_mask + place, count, wide);
#pragma unroll
    for (int j = 0; j < 4; ++j) four.v[j] = mask.v[j] > 0 ? four.v[j] : 0.0f;
  }
  if (out.add != 0) {
    const Four old = load_up_to_four(out.y + place, count, wide);
#pragma unroll
    for (int j = 0; j < 4; ++j) four.v[j] += old.v[j];
  }
  store_up_to_four(out.y + place, four, count, wide);
}

// One block computes one tile, or with splits its part of the sums of one. Grid: tiles, splits, batch or groups; 256
// threads. Every element of A is read once per column of tiles, of B once per row of tiles. Deterministic.
template <class Tile, class T, class A, class B>
__global__ void __launch_bounds__(kGemmThreads, Tile::kBlocks)
    tile_gemm_kernel(A a, B b, GemmOutput<T> out, GemmSizes sizes, GemmSplit split) {
  const int tile_columns = (sizes.columns + Tile::kColumns - 1) / Tile::kColumns;
  const int z = static_cast<int>(blockIdx.z), tile = static_cast<int>(blockIdx.x);
  const int row0 = tile / tile_columns * Tile::kRows, column0 = tile % tile_columns * Tile::kColumns;
  const int steps = (sizes.depth + Tile::kDepth - 1) / Tile::kDepth;
  const int share = (steps + sizes.splits - 1) / sizes.splits;
  const int first = static_cast<int>(blockIdx.y) * share;
  const int last = first + share < steps ? first + share : steps;
  const bool want_row_sums = out.row_sums != nullptr && column0 == 0;

  GemmSums<Tile> sums = gemm_tile_sums<Tile>(a, b, row0, column0, z, first, last, want_row_sums);
  if (sizes.splits > 1 && !gemm_join_splits(sums, split, z * static_cast<int>(gridDim.x) + tile, sizes.splits)) return;

  const int t = static_cast<int>(threadIdx.x);
  const int column = column0 + GemmSums<Tile>::column(t);
#pragma unroll
  for (int i = 0; i < GemmSums<Tile>::kOwnRows; ++i) {
    const int row = row0 + GemmSums<Tile>::row(t) + i;
    if (row >= sizes.rows || column >= sizes.columns) continue;
    gemm_write(out, row, column, z, sizes.columns,
               {{sums.value[i][0], sums.value[i][1], sums.value[i][2], sums.value[i][3]}});
  }
  if (want_row_sums && t < Tile::kRows && row0 + t < sizes.rows) {
    T& place = out.row_sums[static_cast<long long>(z) * sizes.rows + row0 + t];
    place = convert_to<T>(out.add != 0 ? widen(place) + sums.row_sum : sums.row_sum);
  }
}

}  // namespace heddle::cuda::device
