// Optimiser updates: one pass over a range of the flat buffers, every value read and written once. A weight that would
// not be finite stays as it is, together with its state, and is counted.
// Source: torch.optim.SGD, Adam and AdamW (the formulas of their documentation pages).
#include <cfloat>

#include "kernels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

inline bool is_finite(float value) { return __builtin_fabsf(value) <= FLT_MAX; }

template <bool Nesterov>
std::int64_t sgd_momentum(const SgdStep& args, Range values) {
  float* __restrict w = args.w;
  const float* __restrict g = args.g;
  float* __restrict m = args.momentum_buffer;
  const float learning_rate = args.learning_rate, momentum = args.momentum;
  const float weight_decay = args.weight_decay, grad_scale = args.grad_scale;
  std::int32_t refused = 0;
  for (std::int64_t i = values.begin; i < values.end; ++i) {
    const float gradient = grad_scale * g[i] + weight_decay * w[i];
    const float buffer = momentum * m[i] + gradient;
    const float next = w[i] - learning_rate * (Nesterov ? gradient + momentum * buffer : buffer);
    const bool good = is_finite(next);
    refused += good ? 0 : 1;
    m[i] = good ? buffer : m[i];
    w[i] = good ? next : w[i];
  }
  return refused;
}

}  // namespace

std::int64_t sgd_step(const SgdStep& args, Range values) {
  if (args.momentum_buffer != nullptr) {
    return args.nesterov ? sgd_momentum<true>(args, values) : sgd_momentum<false>(args, values);
  }
  float* __restrict w = args.w;
  const float* __restrict g = args.g;
  const float learning_rate = args.learning_rate, weight_decay = args.weight_decay, grad_scale = args.grad_scale;
  std::int32_t refused = 0;
  for (std::int64_t i = values.begin; i < values.end; ++i) {
    const float next = w[i] - learning_rate * (grad_scale * g[i] + weight_decay * w[i]);
    const bool good = is_finite(next);
    refused += good ? 0 : 1;
    w[i] = good ? next : w[i];
  }
  return refused;
}

std::int64_t adam_step(const AdamStep& args, Range values) {
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
  std::int32_t refused = 0;
  for (std::int64_t i = values.begin; i < values.end; ++i) {
    const float gradient = grad_scale * g[i] + coupled * w[i];
    const float first = beta1 * m[i] + rest1 * gradient;
    const float second = beta2 * v[i] + rest2 * gradient * gradient;
    const float next = kept * w[i] - step_size * (first / (__builtin_sqrtf(second) * correction + eps));
    // A second moment that overflowed would freeze its weight for good without being noticed.
    const bool good = is_finite(next) && is_finite(second);
    refused += good ? 0 : 1;
    m[i] = good ? first : m[i];
    v[i] = good ? second : v[i];
    w[i] = good ? next : w[i];
  }
  return refused;
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
