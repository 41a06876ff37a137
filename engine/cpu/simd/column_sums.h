// Sums of the columns of a dense (rows, columns) array with full vectors, whatever the number of columns is.
#pragma once

#include "vec.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

// Vector i of the flat array is added to accumulator i modulo the period: the smallest number of vectors that hold
// whole rows, at least eight so that additions do not wait for each other.
HEDDLE_INLINE std::int64_t column_sums_period(std::int64_t columns) {
  std::int64_t a = columns, b = kLanes;
  while (b != 0) {
    const std::int64_t r = a % b;
    a = b;
    b = r;
  }
  const std::int64_t vectors = columns / a;
  return vectors * ceil_div(8, vectors);
}
HEDDLE_INLINE std::int64_t column_sums_floats(std::int64_t columns) { return column_sums_period(columns) * kLanes; }

// Adds rows of x to the accumulators (column_sums_floats, zeroed by the caller).
HEDDLE_INLINE void add_to_column_sums(const float* x, std::int64_t rows, std::int64_t columns, float* accumulators) {
  const std::int64_t numel = rows * columns;
  const std::int64_t period = column_sums_floats(columns);
  std::int64_t i = 0;
  for (; i + period <= numel; i += period) {
    for (std::int64_t j = 0; j < period; j += kLanes) store(accumulators + j, load(accumulators + j) + load(x + i + j));
  }
  std::int64_t j = 0;
  for (; i + kLanes <= numel; i += kLanes, j += kLanes) {
    store(accumulators + j, load(accumulators + j) + load(x + i));
  }
  for (; i < numel; ++i, ++j) accumulators[j] += x[i];
}

// sums[column] = total of its accumulators, added to the old value if accumulate.
HEDDLE_INLINE void finish_column_sums(const float* accumulators, std::int64_t columns, bool accumulate, float* sums) {
  const std::int64_t period = column_sums_floats(columns);
  for (std::int64_t c = 0; c < columns; ++c) {
    float sum = 0.0f;
    for (std::int64_t j = c; j < period; j += columns) sum += accumulators[j];
    sums[c] = accumulate ? sums[c] + sum : sum;
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
