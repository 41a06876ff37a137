// Values that the threads of a team agree on. A team is one thread, one warp, or one block of kTeamBlock threads; all
// its threads call these functions together. The order of joining is fixed: deterministic.
#pragma once

#include <cstdint>

namespace heddle::cuda {

inline constexpr int kTeamBlock = 256;

// The values of a team joined, in every thread. join must not depend on the order of its operands.
template <class A, class Join>
__device__ inline A join_team(int team, A value, Join join) {
  if (team == 1) return value;
  for (int distance = 16; distance > 0; distance /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  if (team == 32) return value;
  __shared__ A of_warp[kTeamBlock / 32];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % 32 == 0) of_warp[thread / 32] = value;
  __syncthreads();
  value = of_warp[0];
  for (int w = 1; w < kTeamBlock / 32; ++w) value = join(value, of_warp[w]);
  // The places may be written again by the next call.
  __syncthreads();
  return value;
}

template <class A>
__device__ inline A team_sum(int team, A value) {
  return join_team(team, value, [](A a, A b) { return a + b; });
}
// NaNs are left out.
__device__ inline float team_max(int team, float value) {
  return join_team(team, value, [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace heddle::cuda
