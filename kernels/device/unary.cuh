// Values and derivatives of the element-wise functions of one operand.
#pragma once

#include "kernels/device/functions.cuh"
#include "kernels/device/types.cuh"

namespace heddle::cuda {

// Distribution and density of the standard normal; exact GELU is x * normal_cdf(x).
__device__ inline float normal_cdf(float x) { return 0.5f * (1.0f + erff(x * 0.70710678118654752f)); }
__device__ inline float normal_pdf(float x) { return expf(-0.5f * x * x) * 0.39894228040143268f; }

// v[i] = f(v[i]) for N values. The function is the same for a whole grid: one branch for all of them.
template <int N, class C>
__device__ inline void apply_unary(UnaryFunction function, C (&v)[N], C a, C b) {
  const auto each = [&v](auto f) {
    for (int i = 0; i < N; ++i) v[i] = f(v[i]);
  };
  switch (function) {
    case UnaryFunction::neg: return each([](C x) { return multiply(x, static_cast<C>(-1)); });
    case UnaryFunction::abs:
      return each([](C x) {
        if constexpr (std::is_floating_point_v<C>) {
          return fabsf(x);
        } else if constexpr (std::is_unsigned_v<C>) {
          return x;
        } else {
          return x < 0 ? multiply(x, static_cast<C>(-1)) : x;
        }
      });
    // Written so that NaN stays and -0 becomes 0.
    case UnaryFunction::relu: return each([](C x) { return x > 0 || x != x ? x : C(0); });
    case UnaryFunction::add_scalar: return each([a](C x) { return add(x, a); });
    case UnaryFunction::mul_scalar: return each([a](C x) { return multiply(x, a); });
    case UnaryFunction::clamp: return each([a, b](C x) { return x < a ? a : x > b ? b : x; });
    default: break;
  }
  if constexpr (std::is_floating_point_v<C>) {
    switch (function) {
      case UnaryFunction::exp: return each([](C x) { return expf(x); });
      case UnaryFunction::log: return each([](C x) { return logf(x); });
      case UnaryFunction::sqrt: return each([](C x) { return sqrtf(x); });
      case UnaryFunction::sigmoid: return each([](C x) { return 1.0f / (1.0f + expf(-x)); });
      case UnaryFunction::tanh: return each([](C x) { return tanhf(x); });
      case UnaryFunction::gelu: return each([](C x) { return x * normal_cdf(x); });
      case UnaryFunction::pow_scalar:
        if (a == 2) return each([](C x) { return x * x; });
        return each([a](C x) { return powf(x, a); });
      default: return;
    }
  }
}

// g[i] *= f'(.) for N values. saved[i] is the result of exp, sqrt, relu, sigmoid and tanh, the operand of abs, log,
// gelu, pow_scalar and clamp; the others do not look at it.
template <int N>
__device__ inline void apply_unary_backward(UnaryFunction function, float (&g)[N], const float (&saved)[N], float a,
                                            float b) {
  const auto each = [&](auto f) {
    for (int i = 0; i < N; ++i) g[i] = f(g[i], saved[i]);
  };
  switch (function) {
    case UnaryFunction::copy:
    case UnaryFunction::add_scalar: return;
    case UnaryFunction::neg: return each([](float d, float) { return -d; });
    case UnaryFunction::mul_scalar: return each([a](float d, float) { return d * a; });
    // From the result y.
    case UnaryFunction::exp: return each([](float d, float y) { return d * y; });
    case UnaryFunction::sqrt: return each([](float d, float y) { return d / (2.0f * y); });
    case UnaryFunction::relu: return each([](float d, float y) { return y > 0 ? d : 0.0f; });
    case UnaryFunction::sigmoid: return each([](float d, float y) { return d * y * (1.0f - y); });
    case UnaryFunction::tanh: return each([](float d, float y) { return d * (1.0f - y * y); });
    // From the operand x. The kinks of abs and clamp get 0 and 1, as in PyTorch.
    case UnaryFunction::abs: return each([](float d, float x) { return x > 0 ? d : x < 0 ? -d : 0.0f; });
    case UnaryFunction::log: return each([](float d, float x) { return d / x; });
    case UnaryFunction::gelu: return each([](float d, float x) { return d * (normal_cdf(x) + x * normal_pdf(x)); });
    case UnaryFunction::pow_scalar:
      if (a == 0) return each([](float, float) { return 0.0f; });
      if (a == 2) return each([](float d, float x) { return d * 2.0f * x; });
      return each([a](float d, float x) { return d * a * powf(x, a - 1.0f); });
    case UnaryFunction::clamp: return each([a, b](float d, float x) { return x >= a && x <= b ? d : 0.0f; });
  }
}

}  // namespace heddle::cuda
