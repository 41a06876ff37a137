// Loops over arrays that are bound by memory: plain loops that the compiler turns into vectors. Sums keep many
// accumulators in one fixed order.
#include "kernels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

void relu_forward(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

void relu_backward(const float* dy, const float* y, float* dx, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(dx + i, select(load(y + i) > Vec{}, load(dy + i), Vec{}));
  for (; i < n; ++i) dx[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

void add(const float* a, const float* b, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

void multiply(const float* a, const float* b, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

void scale(const float* x, float factor, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

void axpy(float factor, const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

void fill(float value, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = value;
}

void move_towards(const float* __restrict x, float share, float* __restrict y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += share * (x[i] - y[i]);
}

void bytes_to_float(const std::uint8_t* x, const float* scale, const float* shift, std::int64_t channels, float* y,
                    std::int64_t n) {
  if (channels == 1) {
    const float factor = scale[0], offset = shift[0];
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i]) * factor + offset;
    return;
  }
  for (std::int64_t i = 0; i < n; i += channels) {
    for (std::int64_t c = 0; c < channels; ++c) y[i + c] = static_cast<float>(x[i + c]) * scale[c] + shift[c];
  }
}

void to_bfloat16(const float* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x[i]);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;
    y[i] = static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
}

void from_bfloat16(const std::uint16_t* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(x[i]) << 16);
}

namespace {

// Adds 16 values, or their squares, to 16 accumulators a turn: the order depends on n alone, not on the vector width.
template <bool Square>
double sum_in_double(const float* x, std::int64_t n) {
  constexpr int kAccumulators = 16;
  double sums[kAccumulators] = {};
  std::int64_t i = 0;
  for (; i + kAccumulators <= n; i += kAccumulators) {
    for (int j = 0; j < kAccumulators; ++j) {
      const double value = x[i + j];
      sums[j] += Square ? value * value : value;
    }
  }
  for (int j = 0; i < n; ++i, ++j) {
    const double value = x[i];
    sums[j] += Square ? value * value : value;
  }
  for (int width = kAccumulators / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

}  // namespace

double sum(const float* x, std::int64_t n) { return sum_in_double<false>(x, n); }
double sum_of_squares(const float* x, std::int64_t n) { return sum_in_double<true>(x, n); }

std::int64_t count_nonfinite(const float* x, std::int64_t n) {
  std::int64_t count = 0;
  while (n > 0) {
    const std::int64_t block = min64(n, std::int64_t{1} << 20);  // a 32-bit counter vectorises better
    std::int32_t found = 0;
    for (std::int64_t i = 0; i < block; ++i) {
      found += (__builtin_bit_cast(std::uint32_t, x[i]) & 0x7f800000u) == 0x7f800000u ? 1 : 0;
    }
    count += found;
    x += block;
    n -= block;
  }
  return count;
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
