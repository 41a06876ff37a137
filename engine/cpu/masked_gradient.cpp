#include "engine/cpu/masked_gradient.h"

#include "engine/core/parallel.h"
#include "engine/cpu/simd/simd_kernels.h"

namespace heddle::cpu {
namespace {

constexpr std::int64_t kGrain = 1 << 15;

// f32 runs on the SIMD kernels; f64 and bf16 in loops.
template <class Function>
void with_dtype(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f64: return function(double{});
    case DType::bf16: return function(bfloat16{});
    default: throw NotSupported(join_text("gradient: no ", dtype, " on the CPU"));
  }
}

double value_of(double value) { return value; }
float value_of(bfloat16 value) { return static_cast<float>(value); }

}  // namespace

void apply_relu_mask(const Tensor& relu_mask, Tensor& dx) {
  if (dx.dtype() == DType::f32) {
    const auto& kernels = simd::simd_kernels();
    const float* const mask = relu_mask.host_data<float>();
    float* const out = dx.mutable_host_data<float>();
    return parallel_for(dx.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      kernels.relu_backward(out + begin, mask + begin, out + begin, end - begin);
    });
  }
  with_dtype(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* const mask = relu_mask.host_data<T>();
    T* const out = dx.mutable_host_data<T>();
    parallel_for(dx.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = value_of(mask[i]) > 0 ? out[i] : zero;
    });
  });
}

void add_gradient(Tensor& gradient, const Tensor& relu_mask, Tensor& dx) {
  if (relu_mask.defined()) apply_relu_mask(relu_mask, gradient);
  if (dx.dtype() == DType::f32) {
    const auto& kernels = simd::simd_kernels();
    const float* const in = gradient.host_data<float>();
    float* const out = dx.mutable_host_data<float>();
    return parallel_for(dx.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      kernels.add(out + begin, in + begin, out + begin, end - begin);
    });
  }
  with_dtype(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* const in = gradient.host_data<T>();
    T* const out = dx.mutable_host_data<T>();
    parallel_for(dx.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = T(value_of(out[i]) + value_of(in[i]));
    });
  });
}

void relu_in_place(Tensor& y) {
  if (y.dtype() == DType::f32) {
    const auto& kernels = simd::simd_kernels();
    float* const out = y.mutable_host_data<float>();
    return parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      kernels.relu_forward(out + begin, out + begin, end - begin);
    });
  }
  with_dtype(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* const out = y.mutable_host_data<T>();
    parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = value_of(out[i]) < 0 ? zero : out[i];
    });
  });
}

}  // namespace heddle::cpu
