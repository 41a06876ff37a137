// Random numbers and dropout. Element i takes number offset + i of its stream. Threads [0, packs) of the grid have a
// pack of 16 bytes, those behind them one element. Blocks of 256. Deterministic.
#pragma once

#include "kernels/device/philox.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

template <class T>
struct DropoutFunction {
  const T* x;
  T* y;
  float scale;
  std::uint32_t first_kept;  // an element is kept when the upper 24 bits of its number are at least this
  bool add;

  __device__ float value(float x_value, float old, std::uint32_t word) const {
    const float kept = (word >> 8) >= first_kept ? x_value * scale : 0.0f;
    return add ? kept + old : kept;
  }
};

// y (=|+=) x * keep * scale. Bytes an element: one read (two with add), one written.
template <class T>
__global__ void dropout_kernel(DropoutFunction<T> f, PhiloxStream stream, std::int64_t count, std::int64_t packs) {
  constexpr int N = kPackSize<T>;
  const std::int64_t i = grid_thread();
  if (i < packs) {
    std::uint32_t words[N];
    random_words<N>(stream, i * N, words);
    const auto x = load_pack<N>(f.x + i * N);
    Pack<T, N> y = {};
    if (f.add) y = load_pack<N>(f.y + i * N);
#pragma unroll
    for (int k = 0; k < N; ++k) y.at[k] = convert_to<T>(f.value(widen(x.at[k]), widen(y.at[k]), words[k]));
    store_pack<N>(f.y + i * N, y);
    return;
  }
  if (const std::int64_t e = single_element<N>(i, packs); e < count) {
    f.y[e] = convert_to<T>(f.value(widen(f.x[e]), f.add ? widen(f.y[e]) : 0.0f, random_word(stream, e)));
  }
}

// Uniform numbers of [low, high), worked out in double as on the CPU.
struct UniformNumbers {
  double low, high;

  __device__ float number(std::uint32_t word, std::uint32_t, bool) const {
    const double value = low + (high - low) * (static_cast<double>(word >> 8) * 0x1p-24);
    const float rounded = static_cast<float>(value);
    // What rounding lifted to the bound becomes the largest float below it.
    return static_cast<double>(rounded) < high || value >= high ? rounded : nextafterf(rounded, -INFINITY);
  }
};

// Normal numbers by Box-Muller from the numbers at an even stream position and the next: the even element gets the
// cosine, the odd one the sine.
struct NormalNumbers {
  double mean, stddev;

  __device__ float number(std::uint32_t even, std::uint32_t odd, bool is_even) const {
    // 1 - u is in (0,1], so the logarithm is finite.
    const double radius = sqrt(-2 * log(1 - static_cast<double>(even) * 0x1p-32));
    const double turns = 2 * (static_cast<double>(odd) * 0x1p-32);
    return static_cast<float>(mean + stddev * radius * (is_even ? cospi(turns) : sinpi(turns)));
  }
};

// y[i] = an independent number of the distribution. One thread: one element (these fill weights and noise, once). Bytes
// an element: one written.
template <class T, class Distribution>
__global__ void random_kernel(Distribution distribution, PhiloxStream stream, T* y, std::int64_t count) {
  const std::int64_t i = grid_thread();
  if (i >= count) return;
  const std::uint64_t position = stream.offset + static_cast<std::uint64_t>(i);
  const PhiloxBlock block = philox_block(stream.seed, position / 4, stream_number(stream));
  const bool upper = position % 4 >= 2, is_even = position % 2 == 0;
  const std::uint32_t even = upper ? block.at[2] : block.at[0], odd = upper ? block.at[3] : block.at[1];
  if constexpr (std::is_same_v<Distribution, UniformNumbers>) {
    y[i] = convert_to<T>(distribution.number(is_even ? even : odd, 0, true));
  } else {
    y[i] = convert_to<T>(distribution.number(even, odd, is_even));
  }
}

}  // namespace heddle::cuda
