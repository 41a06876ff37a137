// Walks several dense operands that broadcast to one output. Used by binary and where.
#pragma once

#include <algorithm>
#include <array>

#include "engine/core/merged_dims.h"
#include "engine/core/parallel.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {

// Calls run(i, offsets, n) for pieces of the innermost dimension that cover elements [begin, end) of the output:
// output elements [i, i + n), operand k from element offsets[k] on.
template <int N, class Run>
void for_each_run(const BroadcastDims<N>& plan, std::int64_t begin, std::int64_t end, Run&& run) {
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
