// Softmax and log-softmax of rows of n elements. One team of 32 or 256 threads: one row, whose elements are read once
// from memory and then from the cache. Blocks of 256; grid: as many teams as rows. Deterministic. T: float, bf16.
#pragma once

#include "kernels/device/team.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// The largest element of a row and the sum of exp(x - it), in every thread of the team. A NaN anywhere gives NaN
// through the sum.
struct RowSum {
  float top, sum;
};
template <class T>
__device__ inline RowSum sum_of_exponentials(const T* row, std::int64_t n, int lane, int team) {
  float top = -std::numeric_limits<float>::infinity(), sum = 0.0f;
  for (std::int64_t c = lane; c < n; c += team) top = fmaxf(top, widen(row[c]));
  top = team_max(team, top);
  for (std::int64_t c = lane; c < n; c += team) sum += expf(widen(row[c]) - top);
  return {top, team_sum(team, sum)};
}

// y = softmax(x), or its logarithm. Bytes an element: one read, one written.
template <class T>
__global__ void __launch_bounds__(kTeamBlock)
    softmax_forward_kernel(const T* x, std::int64_t rows, std::int64_t n, int team, bool log, T* y) {
  const std::int64_t row = grid_thread() / team;
  if (row >= rows) return;  // whole teams leave
  const int lane = static_cast<int>(threadIdx.x) % team;
  const T* const from = x + row * n;
  T* const to = y + row * n;
  const RowSum total = sum_of_exponentials(from, n, lane, team);
  const float log_sum = logf(total.sum), scale = 1.0f / total.sum;
  for (std::int64_t c = lane; c < n; c += team) {
    const float z = widen(from[c]) - total.top;
    to[c] = convert_to<T>(log ? z - log_sum : expf(z) * scale);
  }
}

// Softmax: dx_i = y_i (dy_i - sum_j dy_j y_j). Log-softmax: dx_i = dy_i - exp(y_i) sum_j dy_j. Bytes an element: two
// read (three if add), one written.
template <class T>
__global__ void __launch_bounds__(kTeamBlock)
    softmax_backward_kernel(const T* y, const T* dy, std::int64_t rows, std::int64_t n, int team, bool log, T* dx,
                            bool add_to_dx) {
  const std::int64_t row = grid_thread() / team;
  if (row >= rows) return;  // whole teams leave
  const int lane = static_cast<int>(threadIdx.x) % team;
  const T *const saved = y + row * n, *const from = dy + row * n;
  T* const to = dx + row * n;
  float total = 0.0f;
  for (std::int64_t c = lane; c < n; c += team) total += log ? widen(from[c]) : widen(from[c]) * widen(saved[c]);
  total = team_sum(team, total);
  for (std::int64_t c = lane; c < n; c += team) {
    const float g = widen(from[c]), v = widen(saved[c]);
    float value = log ? g - expf(v) * total : v * (g - total);
    if (add_to_dx) value += widen(to[c]);
    to[c] = convert_to<T>(value);
  }
}

}  // namespace heddle::cuda
