// What reductions accumulate, and where a result goes. Sums of floats are accumulated in double, of integers in 64
// bits; extremes in the arithmetic type of the element.
#pragma once

#include "kernels/device/functions.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// T: float, bf16, double, std::int64_t.
template <class T>
struct SumOf {
  using Element = T;
  using Accumulator = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

  __device__ explicit SumOf(Joining) {}
  __device__ Accumulator start() const { return 0; }
  __device__ Accumulator join(Accumulator a, Accumulator b) const { return add(a, b); }
};

// Starts from the weakest value; a NaN wins and stays. T: float, bf16, std::int64_t.
template <class T>
struct ExtremeOf {
  using Element = T;
  using Accumulator = Compute<T>;

  bool smallest;
  __device__ explicit ExtremeOf(Joining joining) : smallest(joining == Joining::min) {}
  __device__ Accumulator start() const {
    using Limits = std::numeric_limits<Accumulator>;
    if constexpr (std::is_integral_v<Accumulator>) {
      return smallest ? Limits::max() : Limits::lowest();
    } else {
      return smallest ? Limits::infinity() : -Limits::infinity();
    }
  }
  __device__ Accumulator join(Accumulator a, Accumulator b) const {
    return (smallest ? b < a : b > a) || b != b ? b : a;
  }
};

// How a result is written: y[i] (=|+=) value * factor, in the type of y.
struct ReduceTarget {
  double factor = 1;  // used for sums of floats only
  ElementType type = ElementType::f32;
  bool add = false;
};

template <class T, class A>
__device__ inline void put_as(T* y, std::int64_t i, A value, const ReduceTarget& target) {
  if (target.add) value = add(value, static_cast<A>(widen(y[i])));
  y[i] = convert_to<T>(value);
}
template <class A>
__device__ inline void put_result(void* y, std::int64_t i, A value, const ReduceTarget& target) {
  if constexpr (std::is_same_v<A, double>) value *= target.factor;
  if constexpr (std::is_integral_v<A>) {
    switch (target.type) {
      case ElementType::i32: return put_as(static_cast<std::int32_t*>(y), i, value, target);
      case ElementType::u8: return put_as(static_cast<std::uint8_t*>(y), i, value, target);
      default: return put_as(static_cast<std::int64_t*>(y), i, value, target);
    }
  } else {
    switch (target.type) {
      case ElementType::bf16: return put_as(static_cast<bf16*>(y), i, value, target);
      case ElementType::f64: return put_as(static_cast<double*>(y), i, value, target);
      default: return put_as(static_cast<float*>(y), i, value, target);
    }
  }
}

// Joins the elements of one pack to an accumulator. Floats of a pack are added in float first: four or eight of them
// lose nothing that matters, and the conversion to double is paid once.
template <class Op, int N>
__device__ inline typename Op::Accumulator join_pack(const Op& op, typename Op::Accumulator total,
                                                     const Pack<typename Op::Element, N>& pack) {
  using A = typename Op::Accumulator;
  using C = Compute<typename Op::Element>;
  if constexpr (std::is_same_v<A, double> && std::is_same_v<C, float>) {
    float part[N];
    for (int k = 0; k < N; ++k) part[k] = widen(pack.at[k]);
    for (int half = N / 2; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) part[k] += part[k + half];
    }
    return op.join(total, static_cast<A>(part[0]));
  } else {
    for (int k = 0; k < N; ++k) total = op.join(total, static_cast<A>(widen(pack.at[k])));
    return total;
  }
}

}  // namespace heddle::cuda
