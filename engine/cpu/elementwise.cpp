// Fill, cast and arithmetic on each element alone. Used through CpuBackend. Rows of an operation, best first: the SIMD
// table for f32 arrays, then the loops here for every dtype.
#include <cmath>
#include <numbers>

#include "engine/core/parallel.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/simd/simd_kernels.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

// The SIMD table's y = f(x) on f32 arrays, or null.
using ArrayFunction = void (*)(const float*, float*, std::int64_t);
ArrayFunction array_function(UnaryOp op) {
  const simd::SimdKernels& kernels = simd::simd_kernels();
  switch (op) {
    case UnaryOp::exp: return kernels.exp;
    case UnaryOp::log: return kernels.log;
    case UnaryOp::tanh: return kernels.tanh;
    case UnaryOp::sigmoid: return kernels.sigmoid;
    case UnaryOp::relu: return kernels.relu_forward;
    default: return nullptr;
  }
}

// y[i] = f(x[i]).
template <class T, class F>
void map(const Tensor& x, Tensor& y, F f) {
  const T* const from = data_of<T>(x);
  T* const to = data_of<T>(y);
  parallel_for(y.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = convert_to<T>(f(load(from[i])));
  });
}

// dx[i] (=|+=) f(dy[i], source[i]).
template <class T, class F>
void map_gradient(const Tensor& dy, const Tensor& source, Tensor& dx, WriteMode mode, F f) {
  const T* const from = data_of<T>(dy);
  const T* const saved = data_of<T>(source);
  T* const to = data_of<T>(dx);
  parallel_for(dx.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    if (mode == WriteMode::store) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = convert_to<T>(f(load(from[i]), load(saved[i])));
    } else {
      for (std::int64_t i = begin; i < end; ++i) to[i] = convert_to<T>(load(to[i]) + f(load(from[i]), load(saved[i])));
    }
  });
}

// Distribution and density of the standard normal; exact GELU is x * normal_cdf(x).
template <class C>
C normal_cdf(C x) {
  return C(0.5) * (C(1) + std::erf(x * C(1 / std::numbers::sqrt2)));
}
template <class C>
C normal_pdf(C x) {
  return std::exp(C(-0.5) * x * x) * C(0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
}

// Arithmetic that wraps for integers, where overflow of signed types would be undefined.
template <class C>
using Wrapping = std::conditional_t<std::is_integral_v<C>, std::uint64_t, C>;
template <class C>
C add(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) + static_cast<Wrapping<C>>(b));
}
template <class C>
C multiply(C a, C b) {
  return static_cast<C>(static_cast<Wrapping<C>>(a) * static_cast<Wrapping<C>>(b));
}

// The operations that integers have too. Returns false if op is none of them.
template <class T>
bool unary_of_any(UnaryOp op, const Tensor& x, double a, double b, Tensor& y) {
  using C = Compute<T>;
  const C ca = convert_to<C>(a), cb = convert_to<C>(b);
  switch (op) {
    case UnaryOp::copy: map<T>(x, y, [](C v) { return v; }); return true;
    case UnaryOp::neg: map<T>(x, y, [](C v) { return multiply(v, static_cast<C>(-1)); }); return true;
    case UnaryOp::abs:
      map<T>(x, y, [](C v) {
        if constexpr (std::is_floating_point_v<C>) return std::abs(v);
        return v < 0 ? multiply(v, static_cast<C>(-1)) : v;
      });
      return true;
    // Written so that NaN stays and -0 becomes 0.
    case UnaryOp::relu: map<T>(x, y, [](C v) { return v <= 0 ? C(0) : v; }); return true;
    case UnaryOp::add_scalar: map<T>(x, y, [=](C v) { return add(v, ca); }); return true;
    case UnaryOp::mul_scalar: map<T>(x, y, [=](C v) { return multiply(v, ca); }); return true;
    case UnaryOp::clamp: map<T>(x, y, [=](C v) { return v < ca ? ca : v > cb ? cb : v; }); return true;
    default: return false;
  }
}

template <class T>
void unary_of_float(UnaryOp op, const Tensor& x, double a, Tensor& y) {
  using C = Compute<T>;
  const C ca = static_cast<C>(a);
  switch (op) {
    case UnaryOp::exp: return map<T>(x, y, [](C v) { return std::exp(v); });
    case UnaryOp::log: return map<T>(x, y, [](C v) { return std::log(v); });
    case UnaryOp::sqrt: return map<T>(x, y, [](C v) { return std::sqrt(v); });
    case UnaryOp::sigmoid: return map<T>(x, y, [](C v) { return C(1) / (C(1) + std::exp(-v)); });
    case UnaryOp::tanh: return map<T>(x, y, [](C v) { return std::tanh(v); });
    case UnaryOp::gelu: return map<T>(x, y, [](C v) { return v * normal_cdf(v); });
    case UnaryOp::pow_scalar:
      if (a == 2) return map<T>(x, y, [](C v) { return v * v; });
      return map<T>(x, y, [=](C v) { return std::pow(v, ca); });
    default: throw_not_supported("this unary operation", x.dtype());
  }
}

template <class T>
void unary_backward_of(UnaryOp op, const Tensor& x, const Tensor& y, const Tensor& dy, double a, double b, Tensor& dx,
                       WriteMode mode) {
  using C = Compute<T>;
  const C ca = static_cast<C>(a), cb = static_cast<C>(b);
  switch (op) {
    case UnaryOp::copy:
    case UnaryOp::add_scalar: return map_gradient<T>(dy, dy, dx, mode, [](C g, C) { return g; });
    case UnaryOp::neg: return map_gradient<T>(dy, dy, dx, mode, [](C g, C) { return -g; });
    case UnaryOp::mul_scalar: return map_gradient<T>(dy, dy, dx, mode, [=](C g, C) { return g * ca; });
    // From the result y.
    case UnaryOp::exp: return map_gradient<T>(dy, y, dx, mode, [](C g, C v) { return g * v; });
    case UnaryOp::sqrt: return map_gradient<T>(dy, y, dx, mode, [](C g, C v) { return g / (C(2) * v); });
    case UnaryOp::relu: return map_gradient<T>(dy, y, dx, mode, [](C g, C v) { return v > 0 ? g : C(0); });
    case UnaryOp::sigmoid: return map_gradient<T>(dy, y, dx, mode, [](C g, C v) { return g * v * (C(1) - v); });
    case UnaryOp::tanh: return map_gradient<T>(dy, y, dx, mode, [](C g, C v) { return g * (C(1) - v * v); });
    // From the operand x. The kinks of abs and clamp get 0 and 1, as in PyTorch.
    case UnaryOp::abs: return map_gradient<T>(dy, x, dx, mode, [](C g, C v) { return v > 0 ? g : v < 0 ? -g : C(0); });
    case UnaryOp::log: return map_gradient<T>(dy, x, dx, mode, [](C g, C v) { return g / v; });
    case UnaryOp::gelu:
      return map_gradient<T>(dy, x, dx, mode, [](C g, C v) { return g * (normal_cdf(v) + v * normal_pdf(v)); });
    case UnaryOp::pow_scalar:
      if (a == 0) return map_gradient<T>(dy, x, dx, mode, [](C, C) { return C(0); });
      if (a == 2) return map_gradient<T>(dy, x, dx, mode, [](C g, C v) { return g * C(2) * v; });
      return map_gradient<T>(dy, x, dx, mode, [=](C g, C v) { return g * ca * std::pow(v, ca - C(1)); });
    case UnaryOp::clamp:
      return map_gradient<T>(dy, x, dx, mode, [=](C g, C v) { return v >= ca && v <= cb ? g : C(0); });
  }
}

}  // namespace

void CpuBackend::fill(Tensor& y, double value) {
  if (y.dtype() == DType::f32) {
    float* const to = data_of<float>(y);
    parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      simd::simd_kernels().fill(static_cast<float>(value), to + begin, end - begin);
    });
    return;
  }
  visit_all("fill", y.dtype(), [&]<class T>(TypeTag<T>) {
    T* const to = data_of<T>(y);
    const T v = convert_to<T>(value);
    parallel_for(y.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = v;
    });
  });
}

void CpuBackend::cast(const Tensor& x, Tensor& y) {
  const simd::SimdKernels& kernels = simd::simd_kernels();
  if (x.dtype() == DType::f32 && y.dtype() == DType::bf16) {
    const float* const from = data_of<float>(x);
    auto* const to = data_of<std::uint16_t>(y);
    parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      kernels.to_bfloat16(from + begin, to + begin, end - begin);
    });
    return;
  }
  if (x.dtype() == DType::bf16 && y.dtype() == DType::f32) {
    const auto* const from = data_of<std::uint16_t>(x);
    float* const to = data_of<float>(y);
    parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      kernels.from_bfloat16(from + begin, to + begin, end - begin);
    });
    return;
  }
  visit_all("cast", x.dtype(), [&]<class From>(TypeTag<From>) {
    visit_all("cast", y.dtype(), [&]<class To>(TypeTag<To>) {
      const From* const from = data_of<From>(x);
      To* const to = data_of<To>(y);
      parallel_for(y.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) to[i] = convert_to<To>(from[i]);
      });
    });
  });
}

void CpuBackend::axpy(double alpha, const Tensor& x, Tensor& y) {
  if (y.dtype() == DType::f32) {
    const float* const from = data_of<float>(x);
    float* const to = data_of<float>(y);
    parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      simd::simd_kernels().axpy(static_cast<float>(alpha), from + begin, to + begin, end - begin);
    });
    return;
  }
  visit_floats("axpy", y.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = data_of<T>(x);
    T* const to = data_of<T>(y);
    const auto factor = static_cast<Compute<T>>(alpha);
    parallel_for(y.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = convert_to<T>(load(to[i]) + factor * load(from[i]));
    });
  });
}

void CpuBackend::unary(UnaryOp op, const Tensor& x, double a, double b, Tensor& y) {
  if (const ArrayFunction function = array_function(op); x.dtype() == DType::f32 && function != nullptr) {
    const float* const from = data_of<float>(x);
    float* const to = data_of<float>(y);
    parallel_for(y.numel(), kGrain,
                 [&](std::int64_t begin, std::int64_t end) { function(from + begin, to + begin, end - begin); });
    return;
  }
  visit_all("unary", x.dtype(), [&]<class T>(TypeTag<T>) {
    if (unary_of_any<T>(op, x, a, b, y)) return;
    if constexpr (std::is_integral_v<T>) {
      throw_not_supported("this unary operation", x.dtype());
    } else {
      unary_of_float<T>(op, x, a, y);
    }
  });
}

void CpuBackend::unary_backward(UnaryOp op, const Tensor& x, const Tensor& y, const Tensor& dy, double a, double b,
                                Tensor& dx, WriteMode mode) {
  if (op == UnaryOp::relu && dy.dtype() == DType::f32 && mode == WriteMode::store) {
    const float *const from = data_of<float>(dy), *const saved = data_of<float>(y);
    float* const to = data_of<float>(dx);
    parallel_for(dx.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      simd::simd_kernels().relu_backward(from + begin, saved + begin, to + begin, end - begin);
    });
    return;
  }
  visit_floats("unary_backward", dy.dtype(),
               [&]<class T>(TypeTag<T>) { unary_backward_of<T>(op, x, y, dy, a, b, dx, mode); });
}

}  // namespace heddle::cpu
