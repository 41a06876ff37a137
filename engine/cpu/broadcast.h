// Walks several dense operands that broadcast to one output. Used by binary and where.
#pragma once

#include <algorithm>
#include <array>

#include "engine/core/parallel.h"
#include "engine/core/shape.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {

// The output's dimensions with as many as possible merged, and the step of each of N operands along them (0 where it
// is repeated). Dimensions of size 1 are left out, so the innermost steps are 0 or 1.
template <int N>
struct BroadcastPlan {
  int rank = 0;
  std::int64_t numel = 1;
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  std::array<std::array<std::int64_t, Shape::kMaxRank>, N> steps{};

  BroadcastPlan(const Shape& y, const std::array<const Shape*, N>& operands) : numel(y.numel()) {
    std::array<std::int64_t, N> stride, step;
    stride.fill(1);
    // From the innermost dimension outwards; entry 0 is the innermost.
    for (int d = y.rank() - 1; d >= 0; --d) {
      const std::int64_t size = y.dims()[static_cast<std::size_t>(d)];
      for (int k = 0; k < N; ++k) {
        const Shape& shape = *operands[static_cast<std::size_t>(k)];
        const int own = d - (y.rank() - shape.rank());
        const std::int64_t own_size = own < 0 ? 1 : shape.dims()[static_cast<std::size_t>(own)];
        step[static_cast<std::size_t>(k)] = own_size == 1 ? 0 : stride[static_cast<std::size_t>(k)];
        stride[static_cast<std::size_t>(k)] *= own_size;
      }
      if (size == 1) continue;
      bool merge = rank > 0;
      for (std::size_t k = 0; k < N && merge; ++k) {
        const auto inner = static_cast<std::size_t>(rank - 1);
        merge = step[k] == steps[k][inner] * dims[inner];
      }
      if (merge) {
        dims[static_cast<std::size_t>(rank - 1)] *= size;
      } else {
        dims[static_cast<std::size_t>(rank)] = size;
        for (std::size_t k = 0; k < N; ++k) steps[k][static_cast<std::size_t>(rank)] = step[k];
        ++rank;
      }
    }
    if (rank == 0) {
      rank = 1;
      dims[0] = 1;
    }
  }
};

// Calls run(i, offsets, n) for pieces of the innermost dimension that cover elements [begin, end) of the output:
// output elements [i, i + n), operand k from element offsets[k] on.
template <int N, class Run>
void for_each_run(const BroadcastPlan<N>& plan, std::int64_t begin, std::int64_t end, Run&& run) {
  std::array<std::int64_t, Shape::kMaxRank> index{};
  std::array<std::int64_t, N> offset{};
  std::int64_t rest = begin;
  for (std::size_t d = 0; d < static_cast<std::size_t>(plan.rank); ++d) {
    index[d] = rest % plan.dims[d];
    rest /= plan.dims[d];
    for (std::size_t k = 0; k < N; ++k) offset[k] += index[d] * plan.steps[k][d];
  }
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t n = std::min(plan.dims[0] - index[0], end - i);
    run(i, offset, n);
    i += n;
    index[0] += n;
    for (std::size_t k = 0; k < N; ++k) offset[k] += n * plan.steps[k][0];
    for (std::size_t d = 0; d + 1 < static_cast<std::size_t>(plan.rank) && index[d] == plan.dims[d]; ++d) {
      index[d] = 0;
      ++index[d + 1];
      for (std::size_t k = 0; k < N; ++k) offset[k] += plan.steps[k][d + 1] - plan.dims[d] * plan.steps[k][d];
    }
  }
}

}  // namespace heddle::cpu
