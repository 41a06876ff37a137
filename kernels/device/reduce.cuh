// Reductions of an array (outer, n, inner) over n. Each kernel writes `splits` partial results for every result: the
// rows of n are cut into parts of `part` rows, and result (o, s, i) goes to y[(o * splits + s) * inner + i]. With one
// split that is the result itself; with several, the same kernels reduce the partial ones. The order of joining
// follows from sizes and alignment alone: deterministic. Op: SumOf or ExtremeOf.
#pragma once

#include "kernels/device/divider.cuh"
#include "kernels/device/reduce_ops.cuh"

namespace heddle::cuda {

inline constexpr int kReduceThreads = 256;

struct ReduceShape {
  std::int64_t outer = 1, n = 1, inner = 1;
  std::int64_t splits = 1, part = 1;
};

struct WideDividers {
  Divider column_blocks, inner;
};

// The accumulators of a warp, joined; valid in lane 0. All lanes of the warp call it.
template <class Op>
__device__ inline typename Op::Accumulator join_warp(const Op& op, typename Op::Accumulator value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = op.join(value, __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(distance)));
  }
  return value;
}

// inner = 1: rows in one piece. One warp (team 32) or one block (team 256) reads a part of a row in 16-byte packs,
// with single elements up to the first aligned address and behind the last pack. Blocks of 256; grid: as many teams
// as outer * splits. Bytes an element: one read. Shared memory: one accumulator a warp.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_rows_kernel(const typename Op::Element* x, ReduceShape shape, int team, Joining joining, void* y,
                       ReduceTarget target) {
  using T = typename Op::Element;
  using A = typename Op::Accumulator;
  constexpr int N = static_cast<int>(16 / sizeof(T));
  const Op op(joining);
  const int lane = static_cast<int>(threadIdx.x) % team;
  const std::int64_t task = grid_thread() / team;
  // Whole teams leave: a team of a block's size has one task for each block.
  if (task >= shape.outer * shape.splits) return;
  const std::int64_t row = task / shape.splits, begin = task % shape.splits * shape.part;
  const std::int64_t rest = shape.n - begin, length = rest < shape.part ? rest : shape.part;
  const T* const from = x + row * shape.n + begin;

  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(from) % 16 / sizeof(T));
  std::int64_t head = misaligned == 0 ? 0 : N - misaligned;
  if (head > length) head = length;
  const std::int64_t packs = (length - head) / N, tail = head + packs * N;
  A total = op.start();
  if (lane < head) total = op.join(total, static_cast<A>(widen(from[lane])));
  for (std::int64_t i = lane; i < packs; i += team) total = join_pack(op, total, load_pack<N>(from + head + i * N));
  if (tail + lane < length) total = op.join(total, static_cast<A>(widen(from[tail + lane])));

  total = join_warp(op, total);
  if (team > 32) {
    __shared__ A of_warp[kReduceThreads / 32];
    if (lane % 32 == 0) of_warp[lane / 32] = total;
    __syncthreads();
    if (lane == 0) {
      for (int w = 1; w < kReduceThreads / 32; ++w) total = op.join(total, of_warp[w]);
    }
  }
  if (lane == 0) put_result(y, task, total, target);
}

// A narrow inner dimension: one block reads a part of the rows of one outer index as one run of packs of N elements.
// `threads` of its threads take part, chosen so that the elements of each thread keep their columns: threads * N is a
// multiple of inner. Blocks of 256; grid: outer * splits. Bytes an element: one read. Shared memory: N accumulators a
// thread. N: elements of 16 bytes if every part begins aligned, else 1.
template <class Op, int N>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_narrow_kernel(const typename Op::Element* x, ReduceShape shape, int threads, Joining joining, void* y,
                         ReduceTarget target) {
  using A = typename Op::Accumulator;
  __shared__ A totals[kReduceThreads * N];
  const Op op(joining);
  const int thread = static_cast<int>(threadIdx.x), inner = static_cast<int>(shape.inner);
  const std::int64_t task = blockIdx.x, o = task / shape.splits, begin = task % shape.splits * shape.part;
  const std::int64_t rest = shape.n - begin, rows = rest < shape.part ? rest : shape.part;
  const auto* const from = x + (o * shape.n + begin) * inner;
  const std::int64_t packs = rows * inner / N;

  A own[N];
  for (int k = 0; k < N; ++k) own[k] = op.start();
  if (thread < threads) {
    for (std::int64_t i = thread; i < packs; i += threads) {
      const auto pack = load_pack<N>(from + i * N);
      for (int k = 0; k < N; ++k) own[k] = op.join(own[k], static_cast<A>(widen(pack.at[k])));
    }
    for (int k = 0; k < N; ++k) totals[thread * N + k] = own[k];
  }
  // totals is (groups, inner): halve the number of groups until one is left.
  for (int groups = threads * N / inner; groups > 1;) {
    __syncthreads();
    const int half = (groups + 1) / 2, count = (groups - half) * inner;
    for (int i = thread; i < count; i += kReduceThreads) totals[i] = op.join(totals[i], totals[i + half * inner]);
    groups = half;
  }
  __syncthreads();
  for (int c = thread; c < inner; c += kReduceThreads) {
    A total = totals[c];
    for (std::int64_t e = packs * N; e < rows * inner; ++e) {
      if (e % inner == c) total = op.join(total, static_cast<A>(widen(from[e])));
    }
    put_result(y, task * inner + c, total, target);
  }
}

// Any other shape, best a wide inner dimension. The columns are those of all outer indices, outer * inner of them. One
// thread: N neighbouring columns in every blockDim.y-th row of a part; the block's rows of threads are joined at the
// end. Blocks of (256 / height, height); grid: splits * column_blocks. Bytes an element: one read. Shared memory: N
// accumulators a thread. N: elements of 16 bytes if every row is aligned, else 1.
template <class Op, int N>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_wide_kernel(const typename Op::Element* x, ReduceShape shape, WideDividers dividers, Joining joining,
                       void* y, ReduceTarget target) {
  using A = typename Op::Accumulator;
  __shared__ A totals[kReduceThreads * N];
  const Op op(joining);
  std::int64_t column = blockIdx.x;
  const std::int64_t split = dividers.column_blocks.split(column), begin = split * shape.part;
  column = (column * blockDim.x + threadIdx.x) * N;
  const bool outside = column >= shape.outer * shape.inner;
  const std::int64_t rest = shape.n - begin, end = begin + (rest < shape.part ? rest : shape.part);
  const std::int64_t o = dividers.inner.split(column);  // column is one of this outer index from here on
  const auto* const from = x + o * shape.n * shape.inner + column;

  A own[N];
  for (int k = 0; k < N; ++k) own[k] = op.start();
  if (!outside) {
    for (std::int64_t r = begin + threadIdx.y; r < end; r += blockDim.y) {
      const auto pack = load_pack<N>(from + r * shape.inner);
      for (int k = 0; k < N; ++k) own[k] = op.join(own[k], static_cast<A>(widen(pack.at[k])));
    }
  }
  // totals is (height, N, width), so that neighbouring threads use neighbouring places.
  const int width = static_cast<int>(blockDim.x), height = static_cast<int>(blockDim.y);
  const int x_thread = static_cast<int>(threadIdx.x), y_thread = static_cast<int>(threadIdx.y);
  for (int k = 0; k < N; ++k) totals[(y_thread * N + k) * width + x_thread] = own[k];
  __syncthreads();
  if (y_thread != 0 || outside) return;
  for (int k = 0; k < N; ++k) {
    for (int h = 1; h < height; ++h) own[k] = op.join(own[k], totals[(h * N + k) * width + x_thread]);
    put_result(y, (o * shape.splits + split) * shape.inner + column + k, own[k], target);
  }
}

}  // namespace heddle::cuda
