// Optimiser updates: one pass over a range of the flat buffers, every value read and written once.
// Source: torch.optim.SGD, Adam and AdamW (the formulas of their documentation pages).
#include "kernels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

template <bool Nesterov>
void sgd_momentum(const SgdStep& args, Range values) {
  float* __restrict w = args.w;
  const float* __restrict g = args.g;
  float* __restrict m = args.momentum_buffer;
  const float learning_rate = args.learning_rate, momentum = args.momentum;
  const float weight_decay = args.weight_decay, grad_scale = args.grad_scale;
  const bool first_step = args.first_step;
  for (std::int64_t i = values.begin; i < values.end; ++i) {
    const float gradient = grad_scale * g[i] + weight_decay * w[i];
    const float buffer = first_step ? gradient : momentum * m[i] + gradient;
    m[i] = buffer;
    w[i] -= learning_rate * (Nesterov ? gradient + momentum * buffer : buffer);
  }
}

}  // namespace

void sgd_step(const SgdStep& args, Range values) {
  if (args.momentum_buffer != nullptr) {
    if (args.nesterov) {
      sgd_momentum<true>(args, values);
    } else {
      sgd_momentum<false>(args, values);
    }
    return;
  }
  float* __restrict w = args.w;
  const float* __restrict g = args.g;
  const float learning_rate = args.learning_rate, weight_decay = args.weight_decay, grad_scale = args.grad_scale;
  for (std::int64_t i = values.begin; i < values.end; ++i) {
    w[i] -= learning_rate * (grad_scale * g[i] + weight_decay * w[i]);
  }
}

void adam_step(const AdamStep& args, Range values) {
  float* __restrict w = args.w;
  const float* __restrict g = args.g;
  float* __restrict m = args.m;
  float* __restrict v = args.v;
  const float beta1 = static_cast<float>(args.beta1), beta2 = static_cast<float>(args.beta2);
  const float rest1 = static_cast<float>(1.0 - args.beta1), rest2 = static_cast<float>(1.0 - args.beta2);
  const float eps = args.eps, step_size = args.step_size;
  const float grad_scale = args.grad_scale, correction = args.inverse_sqrt_correction2;
  const float coupled = args.decoupled_weight_decay ? 0.0f : args.weight_decay;
  const float kept = args.decoupled_weight_decay ? 1.0f - args.learning_rate * args.weight_decay : 1.0f;
  for (std::int64_t i = values.begin; i < values.end; ++i) {
    const float gradient = grad_scale * g[i] + coupled * w[i];
    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * gradient * gradient;
    w[i] = kept * w[i] - step_size * (m[i] / (__builtin_sqrtf(v[i]) * correction + eps));
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
