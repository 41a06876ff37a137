#include "nccl_comm/reduce_ranks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "engine/core/parallel.h"

namespace heddle::comm {
namespace {

// Elements added at a time: the sums stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;
// Elements that are worth another thread.
constexpr std::int64_t kGrain = 16 * kBlock;

float widen(bfloat16 value) { return static_cast<float>(value); }
float widen(float value) { return value; }
std::int64_t widen(std::int64_t value) { return value; }

template <class T>
T sum_of(T a, T b) {
  return a + b;
}
// Integers wrap around.
template <>
std::int64_t sum_of(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
// A NaN on either side stays.
template <class T>
T max_of(T a, T b) {
  return a > b || a != a ? a : b;
}

template <class T>
void reduce(ReduceOp op, std::span<const void* const> inputs, std::int64_t begin, std::int64_t end,
            std::span<void* const> outputs, std::int64_t out_begin) {
  using Wide = decltype(widen(T{}));
  parallel_for(end - begin, kGrain, [&](std::int64_t first, std::int64_t last) {
    std::array<Wide, kBlock> total;
    std::array<T, kBlock> result;
    for (std::int64_t at = first; at < last; at += kBlock) {
      const std::int64_t n = std::min(kBlock, last - at);
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        const T* const x = static_cast<const T*>(inputs[r]) + begin + at;
        Wide* const y = total.data();
        if (r == 0) {
          for (std::int64_t i = 0; i < n; ++i) y[i] = widen(x[i]);
        } else if (op == ReduceOp::sum) {
          for (std::int64_t i = 0; i < n; ++i) y[i] = sum_of(y[i], widen(x[i]));
        } else {
          for (std::int64_t i = 0; i < n; ++i) y[i] = max_of(y[i], widen(x[i]));
        }
      }
      for (std::int64_t i = 0; i < n; ++i) result[static_cast<std::size_t>(i)] = T(total[static_cast<std::size_t>(i)]);
      for (void* const output : outputs) {
        std::memcpy(static_cast<T*>(output) + out_begin + at, result.data(), static_cast<std::size_t>(n) * sizeof(T));
      }
    }
  });
}

}  // namespace

void reduce_ranks(DType dtype, ReduceOp op, std::span<const void* const> inputs, std::int64_t begin, std::int64_t end,
                  std::span<void* const> outputs, std::int64_t out_begin) {
  switch (dtype) {
    case DType::f32: return reduce<float>(op, inputs, begin, end, outputs, out_begin);
    case DType::bf16: return reduce<bfloat16>(op, inputs, begin, end, outputs, out_begin);
    case DType::i64: return reduce<std::int64_t>(op, inputs, begin, end, outputs, out_begin);
    default: throw InvalidArgument(join_text("reduce_ranks: no sums of ", dtype));
  }
}

}  // namespace heddle::comm
