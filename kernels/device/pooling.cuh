// Max and average pooling of images (N,H,W,C), sliding and adaptive. One thread: N neighbouring channels of one pixel
// of the image that is written, 16 bytes of them where channels and pointers allow it, else one. Grid: one thread each.
// Blocks of 256. Backward passes gather: every input element adds up the windows that cover it, in their order.
// Deterministic. T: float, bf16.
#pragma once

#include "kernels/device/functions.cuh"
#include "kernels/device/pool_shape.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// argmax of a window without a winner: no element, or a ReLU and none above 0.
inline constexpr std::int32_t kNoWinner = -1;

// Element i of y: the largest of its window (of 0 and it with relu), the first of equal ones; the first NaN wins over
// all. argmax (type u8 or i32) may be null. Bytes a result: the window read, one element and one argmax written.
template <class T, int N>
__global__ void max_pool_forward_kernel(const T* x, PoolShape shape, std::int64_t items, bool relu, T* y, void* argmax,
                                        ElementType argmax_type) {
  const std::int64_t i = grid_thread();
  if (i >= items) return;
  const PoolPlace at = shape.place<N>(i);
  float best[N];
  std::int32_t winner[N];
  for (int k = 0; k < N; ++k) {
    best[k] = 0.0f;
    winner[k] = kNoWinner;
  }
  const std::int32_t row_end = shape.rows.end(at.row), column_begin = shape.columns.begin(at.column);
  const std::int32_t column_end = shape.columns.end(at.column);
  for (std::int32_t h = shape.rows.begin(at.row); h < row_end; ++h) {
    const T* const line = x + shape.input(at.n, h, column_begin, at.channel);
    const std::int32_t position = (h - shape.rows.origin(at.row)) * shape.pitch - shape.columns.origin(at.column);
#pragma unroll 2
    for (std::int32_t w = column_begin; w < column_end; ++w) {
      const auto pack = load_pack<N>(line + std::int64_t{w - column_begin} * shape.channels);
      for (int k = 0; k < N; ++k) {
        const float value = widen(pack.at[k]);
        if (winner[k] < 0 || value > best[k] || (value != value && best[k] == best[k])) {
          best[k] = value;
          winner[k] = position + w;
        }
      }
    }
  }
  Pack<T, N> result;
  for (int k = 0; k < N; ++k) {
    if (relu && best[k] <= 0) {
      best[k] = 0.0f;
      winner[k] = kNoWinner;
    }
    result.at[k] = convert_to<T>(best[k]);
  }
  store_pack<N>(y + i * N, result);
  if (argmax == nullptr) return;
  if (argmax_type == ElementType::u8) {
    Pack<std::uint8_t, N> narrow;
    for (int k = 0; k < N; ++k) narrow.at[k] = static_cast<std::uint8_t>(winner[k]);
    store_pack<N>(static_cast<std::uint8_t*>(argmax) + i * N, narrow);
  } else {
    Pack<std::int32_t, N> wide;
    for (int k = 0; k < N; ++k) wide.at[k] = winner[k];
    store_pack<N>(static_cast<std::int32_t*>(argmax) + i * N, wide);
  }
}

// Adds the gradients of a window's pack to the sums of the channels that won it. P: the type of argmax.
template <class P, class T, int N>
__device__ inline void add_if_winner(const P* argmax, const T* dy, std::int32_t position, float (&sums)[N]) {
  const auto winner = load_pack<N>(argmax);
  const auto gradient = load_pack<N>(dy);
  for (int k = 0; k < N; ++k) {
    if (winner.at[k] == static_cast<P>(position)) sums[k] += widen(gradient.at[k]);
  }
}

// sums -> dx, or dx += sums.
template <class T, int N>
__device__ inline void put_gradient(T* dx, float (&sums)[N], bool add_to_dx) {
  if (add_to_dx) {
    const auto old = load_pack<N>(static_cast<const T*>(dx));
    for (int k = 0; k < N; ++k) sums[k] += widen(old.at[k]);
  }
  Pack<T, N> result;
  for (int k = 0; k < N; ++k) result.at[k] = convert_to<T>(sums[k]);
  store_pack<N>(dx, result);
}

// Element i of dx: the gradients of the windows that it won. Bytes an element: gradient and argmax of the windows that
// cover it, and dx if add, read; one element written.
template <class T, int N>
__global__ void max_pool_backward_kernel(const T* dy, const void* argmax, ElementType argmax_type, PoolShape shape,
                                         std::int64_t items, T* dx, bool add_to_dx) {
  const std::int64_t i = grid_thread();
  if (i >= items) return;
  const PoolPlace at = shape.place<N>(i);
  float sums[N];
  for (int k = 0; k < N; ++k) sums[k] = 0.0f;
  const std::int32_t last_row = shape.rows.last(at.row), last_column = shape.columns.last(at.column);
  const std::int32_t first_column = shape.columns.first(at.column);
#pragma unroll 1
  for (std::int32_t oh = shape.rows.first(at.row); oh < last_row; ++oh) {
#pragma unroll 1
    for (std::int32_t ow = first_column; ow < last_column; ++ow) {
      const std::int64_t from = shape.output(at.n, oh, ow, at.channel);
      const std::int32_t position =
          (at.row - shape.rows.origin(oh)) * shape.pitch + at.column - shape.columns.origin(ow);
      if (argmax_type == ElementType::u8) {
        add_if_winner(static_cast<const std::uint8_t*>(argmax) + from, dy + from, position, sums);
      } else {
        add_if_winner(static_cast<const std::int32_t*>(argmax) + from, dy + from, position, sums);
      }
    }
  }
  put_gradient(dx + i * N, sums, add_to_dx);
}

// Element i of y: the mean of its window. Bytes a result: the window read, one element written.
template <class T, int N>
__global__ void avg_pool_forward_kernel(const T* x, PoolShape shape, std::int64_t items, T* y) {
  const std::int64_t i = grid_thread();
  if (i >= items) return;
  const PoolPlace at = shape.place<N>(i);
  float sums[N];
  for (int k = 0; k < N; ++k) sums[k] = 0.0f;
  const std::int32_t row_end = shape.rows.end(at.row), column_begin = shape.columns.begin(at.column);
  const std::int32_t column_end = shape.columns.end(at.column);
  for (std::int32_t h = shape.rows.begin(at.row); h < row_end; ++h) {
    const T* const line = x + shape.input(at.n, h, column_begin, at.channel);
#pragma unroll 2
    for (std::int32_t w = 0; w < column_end - column_begin; ++w) {
      const auto pack = load_pack<N>(line + std::int64_t{w} * shape.channels);
      for (int k = 0; k < N; ++k) sums[k] += widen(pack.at[k]);
    }
  }
  const float factor = shape.average_factor(at.row, at.column);
  Pack<T, N> result;
  for (int k = 0; k < N; ++k) result.at[k] = convert_to<T>(sums[k] * factor);
  store_pack<N>(y + i * N, result);
}

// Element i of dx: dy / divisor of the windows that cover it, 0 where relu_mask (null: none) is not above 0. Bytes an
// element: the gradients of those windows, the mask, and dx if add, read; one element written.
template <class T, int N>
__global__ void __launch_bounds__(256, 4) avg_pool_backward_kernel(const T* dy, const T* relu_mask, PoolShape shape,
                                                                   std::int64_t items, T* dx, bool add_to_dx) {
  const std::int64_t i = grid_thread();
  if (i >= items) return;
  const PoolPlace at = shape.place<N>(i);
  float sums[N];
  for (int k = 0; k < N; ++k) sums[k] = 0.0f;
  const std::int32_t last_row = shape.rows.last(at.row), last_column = shape.columns.last(at.column);
  const std::int32_t first_column = shape.columns.first(at.column);
#pragma unroll 1
  for (std::int32_t oh = shape.rows.first(at.row); oh < last_row; ++oh) {
#pragma unroll 1
    for (std::int32_t ow = first_column; ow < last_column; ++ow) {
      const auto gradient = load_pack<N>(dy + shape.output(at.n, oh, ow, at.channel));
      const float factor = shape.average_factor(oh, ow);
      for (int k = 0; k < N; ++k) sums[k] += widen(gradient.at[k]) * factor;
    }
  }
  if (relu_mask != nullptr) {
    const auto mask = load_pack<N>(relu_mask + i * N);
    for (int k = 0; k < N; ++k) sums[k] = widen(mask.at[k]) > 0 ? sums[k] : 0.0f;
  }
  put_gradient(dx + i * N, sums, add_to_dx);
}

}  // namespace heddle::cuda
