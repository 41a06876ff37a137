// Element-wise operations of several operands with broadcasting. Used through CpuBackend. Rows, best first: the SIMD
// table for sums and products of f32 operands of one shape, then the loops here.
#include <cmath>

#include "engine/cpu/broadcast.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/simd/simd_kernels.h"

namespace heddle::cpu {
namespace {

// y[i] = f(a[.], b[.]). Operands of one shape, a repeated single element and repeated rows get plain inner loops.
template <class T, class R, class F>
void zip(const Tensor& a, const Tensor& b, Tensor& y, F f) {
  const T* const pa = data_of<T>(a);
  const T* const pb = data_of<T>(b);
  R* const py = data_of<R>(y);
  const BroadcastDims<2> plan(y.shape(), {&a.shape(), &b.shape()});
  const std::int64_t step_a = plan.steps[0][0], step_b = plan.steps[1][0];
  parallel_for(plan.numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_each_run(plan, begin, end, [&](std::int64_t at, const std::array<std::int64_t, 2>& offset, std::int64_t n) {
      const T* const ra = pa + offset[0];
      const T* const rb = pb + offset[1];
      R* const ry = py + at;
      if (step_a != 0 && step_b != 0) {
        for (std::int64_t i = 0; i < n; ++i) ry[i] = convert_to<R>(f(load(ra[i]), load(rb[i])));
      } else if (step_a != 0) {
        const auto vb = load(*rb);
        for (std::int64_t i = 0; i < n; ++i) ry[i] = convert_to<R>(f(load(ra[i]), vb));
      } else {
        const auto va = load(*ra);
        for (std::int64_t i = 0; i < n; ++i) ry[i] = convert_to<R>(f(va, load(rb[i * step_b])));
      }
    });
  });
}

// Integers wrap around; done unsigned because signed overflow is undefined.
template <class C>
using Wrapping = std::conditional_t<std::is_integral_v<C>, std::uint64_t, C>;

template <class T>
void arithmetic(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) {
  using C = Compute<T>;
  using W = Wrapping<C>;
  switch (op) {
    case BinaryOp::add: return zip<T, T>(a, b, y, [](C l, C r) { return static_cast<C>(W(l) + W(r)); });
    case BinaryOp::sub: return zip<T, T>(a, b, y, [](C l, C r) { return static_cast<C>(W(l) - W(r)); });
    case BinaryOp::mul: return zip<T, T>(a, b, y, [](C l, C r) { return static_cast<C>(W(l) * W(r)); });
    // A NaN on either side is the result.
    case BinaryOp::maximum: return zip<T, T>(a, b, y, [](C l, C r) { return l > r || l != l ? l : r; });
    case BinaryOp::minimum: return zip<T, T>(a, b, y, [](C l, C r) { return l < r || l != l ? l : r; });
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    throw_not_supported(op == BinaryOp::div ? "div" : "pow", a.dtype());
  } else if (op == BinaryOp::div) {
    zip<T, T>(a, b, y, [](C l, C r) { return l / r; });
  } else {
    zip<T, T>(a, b, y, [](C l, C r) { return std::pow(l, r); });
  }
}

template <class T>
void comparison(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) {
  using C = Compute<T>;
  using R = std::uint8_t;
  switch (op) {
    case BinaryOp::eq: return zip<T, R>(a, b, y, [](C l, C r) { return R(l == r); });
    case BinaryOp::ne: return zip<T, R>(a, b, y, [](C l, C r) { return R(l != r); });
    case BinaryOp::lt: return zip<T, R>(a, b, y, [](C l, C r) { return R(l < r); });
    case BinaryOp::le: return zip<T, R>(a, b, y, [](C l, C r) { return R(l <= r); });
    case BinaryOp::gt: return zip<T, R>(a, b, y, [](C l, C r) { return R(l > r); });
    default: return zip<T, R>(a, b, y, [](C l, C r) { return R(l >= r); });
  }
}

}  // namespace

void CpuBackend::binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) {
  if (a.dtype() == DType::f32 && a.shape() == b.shape() && (op == BinaryOp::add || op == BinaryOp::mul)) {
    const simd::SimdKernels& kernels = simd::simd_kernels();
    const auto function = op == BinaryOp::add ? kernels.add : kernels.multiply;
    const float *const pa = data_of<float>(a), *const pb = data_of<float>(b);
    float* const py = data_of<float>(y);
    parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      function(pa + begin, pb + begin, py + begin, end - begin);
    });
    return;
  }
  visit_all("binary", a.dtype(),
            [&]<class T>(TypeTag<T>) { is_comparison(op) ? comparison<T>(op, a, b, y) : arithmetic<T>(op, a, b, y); });
}

void CpuBackend::where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) {
  visit_all("where", y.dtype(), [&]<class T>(TypeTag<T>) {
    const std::uint8_t* const pc = data_of<std::uint8_t>(condition);
    const T* const pa = data_of<T>(a);
    const T* const pb = data_of<T>(b);
    T* const py = data_of<T>(y);
    const BroadcastDims<3> plan(y.shape(), {&condition.shape(), &a.shape(), &b.shape()});
    const std::int64_t sc = plan.steps[0][0], sa = plan.steps[1][0], sb = plan.steps[2][0];
    parallel_for(plan.numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for_each_run(plan, begin, end, [&](std::int64_t at, const std::array<std::int64_t, 3>& offset, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) {
          py[at + i] = pc[offset[0] + i * sc] != 0 ? pa[offset[1] + i * sa] : pb[offset[2] + i * sb];
        }
      });
    });
  });
}

}  // namespace heddle::cpu
