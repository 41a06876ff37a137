// Element-wise operations of several operands that broadcast to one output. One thread: one pack of 16 bytes of the
// result, or one element behind the packs. Grid: as many threads as that. Blocks of 256. Deterministic.
#pragma once

#include "kernels/device/broadcast_plan.cuh"
#include "kernels/device/functions.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// N neighbouring elements of an operand whose innermost step is 1 or 0.
template <int N, class T>
__device__ inline Pack<T, N> load_operand(const T* address, bool repeated) {
  if (!repeated) return load_pack<N>(address);
  Pack<T, N> pack;
  const T value = *address;
  for (int k = 0; k < N; ++k) pack.at[k] = value;
  return pack;
}

// l[i] = f(l[i], r[i]) for arithmetic functions. The function is the same for a whole grid.
template <int N, class C>
__device__ inline void apply_binary(BinaryFunction function, C (&l)[N], const C (&r)[N]) {
  const auto each = [&](auto f) {
    for (int i = 0; i < N; ++i) l[i] = f(l[i], r[i]);
  };
  switch (function) {
    case BinaryFunction::add: return each([](C a, C b) { return add(a, b); });
    case BinaryFunction::sub: return each([](C a, C b) { return subtract(a, b); });
    case BinaryFunction::mul: return each([](C a, C b) { return multiply(a, b); });
    // A NaN on either side is the result.
    case BinaryFunction::maximum: return each([](C a, C b) { return a > b || a != a ? a : b; });
    case BinaryFunction::minimum: return each([](C a, C b) { return a < b || a != a ? a : b; });
    default: break;
  }
  if constexpr (std::is_floating_point_v<C>) {
    if (function == BinaryFunction::div) return each([](C a, C b) { return a / b; });
    if (function == BinaryFunction::pow) return each([](C a, C b) { return powf(a, b); });
  }
}

template <class C>
__device__ inline bool compare(BinaryFunction function, C a, C b) {
  switch (function) {
    case BinaryFunction::eq: return a == b;
    case BinaryFunction::ne: return a != b;
    case BinaryFunction::lt: return a < b;
    case BinaryFunction::le: return a <= b;
    case BinaryFunction::gt: return a > b;
    default: return a >= b;
  }
}

// y = f(a, b). y may be an operand of its own shape. Bytes an element: two read, one written.
template <class T>
__global__ void binary_kernel(BinaryFunction function, const T* a, const T* b, BroadcastPlan<2> plan,
                              std::int64_t packs, T* y) {
  constexpr int N = kPackSize<T>;
  const std::int64_t i = grid_thread();
  if (i < packs) {
    const auto offset = plan.locate(i * N);
    const auto left = load_operand<N>(a + offset.at[0], plan.is_repeated(0));
    const auto right = load_operand<N>(b + offset.at[1], plan.is_repeated(1));
    Compute<T> l[N], r[N];
    for (int k = 0; k < N; ++k) {
      l[k] = widen(left.at[k]);
      r[k] = widen(right.at[k]);
    }
    apply_binary(function, l, r);
    Pack<T, N> out;
    for (int k = 0; k < N; ++k) out.at[k] = convert_to<T>(l[k]);
    store_pack<N>(y + i * N, out);
    return;
  }
  if (const std::int64_t e = single_element<N>(i, packs); e < plan.numel) {
    const auto offset = plan.locate(e);
    Compute<T> l[1] = {widen(a[offset.at[0]])};
    const Compute<T> r[1] = {widen(b[offset.at[1]])};
    apply_binary(function, l, r);
    y[e] = convert_to<T>(l[0]);
  }
}

// y = 1 where the comparison holds, else 0. Bytes an element: two read, one byte written.
template <class T>
__global__ void compare_kernel(BinaryFunction function, const T* a, const T* b, BroadcastPlan<2> plan,
                               std::int64_t packs, std::uint8_t* y) {
  constexpr int N = kPackSize<T>;
  const std::int64_t i = grid_thread();
  if (i < packs) {
    const auto offset = plan.locate(i * N);
    const auto left = load_operand<N>(a + offset.at[0], plan.is_repeated(0));
    const auto right = load_operand<N>(b + offset.at[1], plan.is_repeated(1));
    Pack<std::uint8_t, N> out;
    for (int k = 0; k < N; ++k) out.at[k] = compare(function, widen(left.at[k]), widen(right.at[k])) ? 1 : 0;
    store_pack<N>(y + i * N, out);
    return;
  }
  if (const std::int64_t e = single_element<N>(i, packs); e < plan.numel) {
    const auto offset = plan.locate(e);
    y[e] = compare(function, widen(a[offset.at[0]]), widen(b[offset.at[1]])) ? 1 : 0;
  }
}

// y = condition ? a : b. T: an unsigned type of the element's size. Bytes an element: one byte and two elements read,
// one written.
template <class T>
__global__ void where_kernel(const std::uint8_t* condition, const T* a, const T* b, BroadcastPlan<3> plan,
                             std::int64_t packs, T* y) {
  constexpr int N = kPackSize<T>;
  const std::int64_t i = grid_thread();
  if (i < packs) {
    const auto offset = plan.locate(i * N);
    const auto choice = load_operand<N>(condition + offset.at[0], plan.is_repeated(0));
    const auto left = load_operand<N>(a + offset.at[1], plan.is_repeated(1));
    auto out = load_operand<N>(b + offset.at[2], plan.is_repeated(2));
    for (int k = 0; k < N; ++k) out.at[k] = choice.at[k] != 0 ? left.at[k] : out.at[k];
    store_pack<N>(y + i * N, out);
    return;
  }
  if (const std::int64_t e = single_element<N>(i, packs); e < plan.numel) {
    const auto offset = plan.locate(e);
    y[e] = condition[offset.at[0]] != 0 ? a[offset.at[1]] : b[offset.at[2]];
  }
}

}  // namespace heddle::cuda
