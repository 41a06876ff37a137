// Sums and maxima over the ranks' host memory. Used by communicators on the CPU.
#pragma once

#include <cstdint>
#include <span>

#include "engine/comm/communicator.h"

namespace heddle::comm {

// Elements [begin, end) of every output become the reduction over the inputs, taken in their order:
// outputs[k][out_begin + i] = reduction of inputs[r][begin + i]. An output may be one of the inputs at the same place.
// bf16 is added in f32 and rounded once. dtype: f32, bf16, i64. Uses the calling thread's parallel_for.
void reduce_ranks(DType dtype, ReduceOp op, std::span<const void* const> inputs, std::int64_t begin, std::int64_t end,
                  std::span<void* const> outputs, std::int64_t out_begin);

}  // namespace heddle::comm
