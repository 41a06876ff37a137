// Where the elements of broadcast operands lie. Made on the host (launch/broadcast.h), passed to kernels by value.
#pragma once

#include "kernels/device/divider.cuh"

namespace heddle::cuda {

template <int N>
struct Offsets {
  std::int64_t at[N];
};

// The output's dimensions, innermost first, with as many as possible merged, and the step of each of N operands along
// them: 0 where it is repeated. The innermost steps are 0 or 1.
template <int N>
struct BroadcastPlan {
  static constexpr int kMaxRank = 8;
  std::int64_t numel = 1;
  int rank = 1;
  Divider dims[kMaxRank];
  std::int64_t steps[N][kMaxRank] = {};

  __device__ bool is_repeated(int operand) const { return steps[operand][0] == 0; }

  // The operands' elements for output element i.
  __device__ Offsets<N> locate(std::int64_t i) const {
    Offsets<N> offset;
    if (rank == 1) {
      for (int k = 0; k < N; ++k) offset.at[k] = i * steps[k][0];
      return offset;
    }
    for (int k = 0; k < N; ++k) offset.at[k] = 0;
    // Constant indices, so that the plan stays in the constant bank.
    for (int d = 0; d < kMaxRank; ++d) {
      if (d < rank) {
        const std::int64_t rest = dims[d].divide(i);
        const std::int64_t index = i - rest * dims[d].value();
        for (int k = 0; k < N; ++k) offset.at[k] += index * steps[k][d];
        i = rest;
      }
    }
    return offset;
  }
};

}  // namespace heddle::cuda
