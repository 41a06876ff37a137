#include "engine/cpu/masked_gradient.h"

#include "engine/core/parallel.h"

namespace heddle::cpu {
namespace {

constexpr std::int64_t kGrain = 1 << 15;

template <class Function>
void with_floating(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f32: return function(float{});
    case DType::f64: return function(double{});
    case DType::bf16: return function(bfloat16{});
    default: throw NotSupported(join_text("gradient: no ", dtype, " on the CPU"));
  }
}

template <class T>
T sum(T a, T b) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return bfloat16(static_cast<float>(a) + static_cast<float>(b));
  } else {
    return a + b;
  }
}

template <class T>
bool above_zero(T value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return static_cast<float>(value) > 0.0f;
  } else {
    return value > T{0};
  }
}

}  // namespace

void apply_relu_mask(const Tensor& relu_mask, Tensor& dx) {
  with_floating(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* const mask = relu_mask.host_data<T>();
    T* const out = dx.mutable_host_data<T>();
    parallel_for(dx.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = above_zero(mask[i]) ? out[i] : zero;
    });
  });
}

void add_gradient(const Tensor& gradient, const Tensor& relu_mask, Tensor& dx) {
  with_floating(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* const in = gradient.host_data<T>();
    const T* const mask = relu_mask.defined() ? relu_mask.host_data<T>() : nullptr;
    T* const out = dx.mutable_host_data<T>();
    parallel_for(dx.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      if (mask == nullptr) {
        for (std::int64_t i = begin; i < end; ++i) out[i] = sum(out[i], in[i]);
      } else {
        for (std::int64_t i = begin; i < end; ++i) out[i] = sum(out[i], above_zero(mask[i]) ? in[i] : zero);
      }
    });
  });
}

void relu_in_place(Tensor& y) {
  with_floating(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* const out = y.mutable_host_data<T>();
    parallel_for(y.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_same_v<T, bfloat16>) {
          out[i] = static_cast<float>(out[i]) < 0.0f ? zero : out[i];
        } else {
          out[i] = out[i] < zero ? zero : out[i];
        }
      }
    });
  });
}

}  // namespace heddle::cpu
