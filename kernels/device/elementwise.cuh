// Fill, cast and arithmetic on each element alone. Every kernel covers an array the same way: its first `packs` packs
// of neighbouring elements in 16-byte accesses, then what is left one by one (all of it where a pointer is not
// aligned). One thread: one pack, or one element behind the packs. Grid: as many threads as that. Blocks of 256.
// Deterministic.
#pragma once

#include "kernels/device/unary.cuh"

namespace heddle::cuda {

// Elements in a pack of a conversion: 16 bytes of the narrower type between the two float types, where speed counts.
template <class From, class To>
inline constexpr int kCastPack =
    std::is_floating_point_v<Compute<From>>&& std::is_floating_point_v<Compute<To>> ? 8 : 4;

// y[i] = value. Bytes an element: sizeof(T) written.
template <class T>
__global__ void fill_kernel(T* y, std::int64_t count, std::int64_t packs, double number) {
  constexpr int N = kPackSize<T>;
  const T value = convert_to<T>(number);
  Pack<T, N> pack;
  for (int k = 0; k < N; ++k) pack.at[k] = value;
  const std::int64_t i = grid_thread();
  if (i < packs) return store_pack<N>(y + i * N, pack);
  if (const std::int64_t e = single_element<N>(i, packs); e < count) y[e] = value;
}

// y[i] = x[i] converted. Bytes an element: one read, one written, each in its type.
template <class From, class To>
__global__ void cast_kernel(const From* x, std::int64_t count, std::int64_t packs, To* y) {
  constexpr int N = kCastPack<From, To>;
  const std::int64_t i = grid_thread();
  if (i < packs) {
    const auto in = load_pack<N>(x + i * N);
    Pack<To, N> out;
    for (int k = 0; k < N; ++k) out.at[k] = convert_to<To>(in.at[k]);
    store_pack<N>(y + i * N, out);
    return;
  }
  if (const std::int64_t e = single_element<N>(i, packs); e < count) y[e] = convert_to<To>(x[e]);
}

// y[i] += alpha * x[i]. Bytes an element: two read, one written. T: float, bf16.
template <class T>
__global__ void axpy_kernel(float alpha, const T* x, std::int64_t count, std::int64_t packs, T* y) {
  constexpr int N = kPackSize<T>;
  const std::int64_t i = grid_thread();
  if (i < packs) {
    const auto in = load_pack<N>(x + i * N);
    auto out = load_pack<N>(static_cast<const T*>(y) + i * N);
    for (int k = 0; k < N; ++k) out.at[k] = convert_to<T>(widen(out.at[k]) + alpha * widen(in.at[k]));
    store_pack<N>(y + i * N, out);
    return;
  }
  if (const std::int64_t e = single_element<N>(i, packs); e < count) {
    y[e] = convert_to<T>(widen(y[e]) + alpha * widen(x[e]));
  }
}

// y[i] = f(x[i]); y may be x. Bytes an element: one read, one written.
template <class T>
__global__ void unary_kernel(UnaryFunction function, const T* x, std::int64_t count, std::int64_t packs,
                             double first_parameter, double second_parameter, T* y) {
  constexpr int N = kPackSize<T>;
  const auto a = convert_to<Compute<T>>(first_parameter), b = convert_to<Compute<T>>(second_parameter);
  const std::int64_t i = grid_thread();
  if (i < packs) {
    auto pack = load_pack<N>(x + i * N);
    Compute<T> v[N];
    for (int k = 0; k < N; ++k) v[k] = widen(pack.at[k]);
    apply_unary(function, v, a, b);
    for (int k = 0; k < N; ++k) pack.at[k] = convert_to<T>(v[k]);
    store_pack<N>(y + i * N, pack);
    return;
  }
  if (const std::int64_t e = single_element<N>(i, packs); e < count) {
    Compute<T> v[1] = {widen(x[e])};
    apply_unary(function, v, a, b);
    y[e] = convert_to<T>(v[0]);
  }
}

// dx[i] (=|+=) dy[i] * f'(saved[i]). Bytes an element: dy, saved if it is not null, and dx if add, read; one written.
// T: float, bf16.
template <class T>
__global__ void unary_backward_kernel(UnaryFunction function, const T* saved, const T* dy, std::int64_t count,
                                      std::int64_t packs, float a, float b, T* dx, bool add_to_dx) {
  constexpr int N = kPackSize<T>;
  const std::int64_t i = grid_thread();
  if (i < packs) {
    auto pack = load_pack<N>(dy + i * N);
    Pack<T, N> saved_pack = pack;
    if (saved != nullptr) saved_pack = load_pack<N>(saved + i * N);
    float g[N], s[N];
    for (int k = 0; k < N; ++k) {
      g[k] = widen(pack.at[k]);
      s[k] = widen(saved_pack.at[k]);
    }
    apply_unary_backward(function, g, s, a, b);
    if (add_to_dx) {
      pack = load_pack<N>(static_cast<const T*>(dx) + i * N);
      for (int k = 0; k < N; ++k) g[k] += widen(pack.at[k]);
    }
    for (int k = 0; k < N; ++k) pack.at[k] = convert_to<T>(g[k]);
    store_pack<N>(dx + i * N, pack);
    return;
  }
  if (const std::int64_t e = single_element<N>(i, packs); e < count) {
    float g[1] = {widen(dy[e])};
    const float s[1] = {saved != nullptr ? widen(saved[e]) : 0.0f};
    apply_unary_backward(function, g, s, a, b);
    if (add_to_dx) g[0] += widen(dx[e]);
    dx[e] = convert_to<T>(g[0]);
  }
}

}  // namespace heddle::cuda
