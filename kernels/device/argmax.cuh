// Index of the largest element.
#pragma once

#include "kernels/device/divider.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// x (outer, n, inner) -> y (outer, inner): index along n of the first largest element; a NaN counts as largest. One
// team of 1 or 32 threads: one result; its lanes read every team-th element and agree by shuffles. Blocks of 256; grid:
// as many teams as results. Bytes an element: one read. Deterministic.
template <class T>
__global__ void argmax_kernel(const T* x, std::int64_t n, Divider inner, std::int64_t results, int team,
                              std::int64_t* y) {
  const std::int64_t result = grid_thread() / team;
  // Whole warps leave: a team is a whole warp or needs no other lane.
  if (result >= results) return;
  const int lane = static_cast<int>(threadIdx.x) % team;
  std::int64_t column = result;
  const std::int64_t o = inner.split(column);
  const T* const from = x + o * n * inner.value() + column;
  // A lane without elements keeps the first one of all: it never beats that.
  std::int64_t at = lane < n ? lane : 0;
  Compute<T> best = widen(from[at * inner.value()]);
  for (std::int64_t j = at + team; j < n; j += team) {
    const Compute<T> value = widen(from[j * inner.value()]);
    if (value > best || (value != value && best == best)) {
      best = value;
      at = j;
    }
  }
  for (int distance = team / 2; distance > 0; distance /= 2) {
    const Compute<T> value = __shfl_down_sync(0xffffffffu, best, static_cast<unsigned>(distance));
    const std::int64_t other = __shfl_down_sync(0xffffffffu, at, static_cast<unsigned>(distance));
    const bool ties = value == best || (value != value && best != best);
    if (value > best || (value != value && best == best) || (ties && other < at)) {
      best = value;
      at = other;
    }
  }
  if (lane == 0) y[result] = at;
}

}  // namespace heddle::cuda
