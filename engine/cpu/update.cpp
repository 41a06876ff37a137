// The end of a training step: gradient checks and optimiser updates in one pass over the flat buffers. Used through
// CpuBackend. Rows, best first: the SIMD table for f32, then the loops here for f64.
#include <cmath>
#include <limits>

#include "engine/core/parallel.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/simd/simd_kernels.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

// Elements whose squares are summed together: the cut is fixed, so the sum does not depend on threads.
constexpr std::int64_t kBlock = 65536;

// Sum of squares in double; infinite or NaN exactly if an element is, since squares of f32 do not overflow double.
double sum_of_squares(const float* x, std::int64_t n) {
  const simd::SimdKernels& kernels = simd::simd_kernels();
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  if (blocks <= 1) return n == 0 ? 0.0 : kernels.sum_of_squares(x, n);
  Tensor scratch = Tensor::empty({blocks}, DType::f64);
  double* const sums = data_of<double>(scratch);
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      sums[b] = kernels.sum_of_squares(x + b * kBlock, std::min(kBlock, n - b * kBlock));
    }
  });
  double total = 0;
  for (std::int64_t b = 0; b < blocks; ++b) total += sums[b];
  return total;
}

struct StepScalars {
  double learning_rate, gradient_scale, step;
};
// False if the update is to be skipped.
bool read_scalars(const Tensor& scalars, double learning_rate_scale, StepScalars& values) {
  const float* const s = data_of<float>(scalars);
  values = {.learning_rate = static_cast<double>(s[step_scalar::kLearningRate]) * learning_rate_scale,
            .gradient_scale = static_cast<double>(s[step_scalar::kGradientScale]),
            .step = static_cast<double>(s[step_scalar::kStep])};
  return s[step_scalar::kSkip] == 0;
}

void own_sgd(Tensor& w, const Tensor& gradient, Tensor& velocity, const SgdParams& params, const StepScalars& s) {
  double* const pw = data_of<double>(w);
  const double* const pg = data_of<double>(gradient);
  double* const pv = velocity.defined() ? data_of<double>(velocity) : nullptr;
  parallel_for(w.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      double g = pg[i] * s.gradient_scale + params.weight_decay * pw[i];
      if (pv != nullptr) {
        pv[i] = params.momentum * pv[i] + g;
        g = params.nesterov ? g + params.momentum * pv[i] : pv[i];
      }
      pw[i] -= s.learning_rate * g;
    }
  });
}

void own_adam(Tensor& w, const Tensor& gradient, Tensor& first_moment, Tensor& second_moment, const AdamParams& params,
              const StepScalars& s, double step_size, double inverse_sqrt_correction2) {
  double* const pw = data_of<double>(w);
  const double* const pg = data_of<double>(gradient);
  double* const pm = data_of<double>(first_moment);
  double* const pv = data_of<double>(second_moment);
  parallel_for(w.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      double g = pg[i] * s.gradient_scale;
      if (params.decoupled) {
        pw[i] -= s.learning_rate * params.weight_decay * pw[i];
      } else {
        g += params.weight_decay * pw[i];
      }
      pm[i] = params.beta1 * pm[i] + (1 - params.beta1) * g;
      pv[i] = params.beta2 * pv[i] + (1 - params.beta2) * g * g;
      pw[i] -= step_size * pm[i] / (std::sqrt(pv[i]) * inverse_sqrt_correction2 + params.eps);
    }
  });
}

}  // namespace

void CpuBackend::prepare_update(const Tensor& gradients, const Tensor& tail, double max_norm, bool want_norm,
                                Tensor& scalars) {
  visit_types<float>("prepare_update", gradients.dtype(), [](auto) {});
  const float* const g = data_of<float>(gradients);
  const float* const t = data_of<float>(tail);
  const double weight_sum = static_cast<double>(t[tail_slot::kWeightSum]);
  double scale = weight_sum == 0 ? 0 : 1 / weight_sum;
  bool finite = !(t[tail_slot::kNonFinite] > 0);
  double norm = std::numeric_limits<double>::quiet_NaN();
  if (want_norm || max_norm > 0) {
    const double squares = sum_of_squares(g, gradients.numel());
    finite = finite && std::isfinite(squares);
    norm = std::sqrt(squares) * scale;
    if (max_norm > 0) scale *= std::fmin(1.0, max_norm / (norm + 1e-6));
  } else if (finite) {
    finite = simd::simd_kernels().count_nonfinite(g, gradients.numel()) == 0;
  }
  float* const s = data_of<float>(scalars);
  s[step_scalar::kGradientScale] = static_cast<float>(scale);
  s[step_scalar::kGradientNorm] = want_norm ? static_cast<float>(norm) : std::numeric_limits<float>::quiet_NaN();
  s[step_scalar::kSkip] = finite ? 0.0f : 1.0f;
}

void CpuBackend::sgd_update(Tensor& w, const Tensor& gradient, Tensor& velocity, const SgdParams& params,
                            const Tensor& scalars) {
  StepScalars s;
  if (!read_scalars(scalars, params.learning_rate_scale, s)) return;
  visit_f32_f64("sgd_update", w.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, float>) {
      const simd::SgdStep step{.w = data_of<float>(w),
                               .g = data_of<float>(gradient),
                               .momentum_buffer = velocity.defined() ? data_of<float>(velocity) : nullptr,
                               .learning_rate = static_cast<float>(s.learning_rate),
                               .momentum = static_cast<float>(params.momentum),
                               .weight_decay = static_cast<float>(params.weight_decay),
                               .grad_scale = static_cast<float>(s.gradient_scale),
                               .nesterov = params.nesterov};
      parallel_for(w.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        simd::simd_kernels().sgd_step(step, {begin, end});
      });
    } else {
      own_sgd(w, gradient, velocity, params, s);
    }
  });
}

void CpuBackend::adam_update(Tensor& w, const Tensor& gradient, Tensor& first_moment, Tensor& second_moment,
                             const AdamParams& params, const Tensor& scalars) {
  StepScalars s;
  if (!read_scalars(scalars, params.learning_rate_scale, s)) return;
  const double step_size = s.learning_rate / (1 - std::pow(params.beta1, s.step));
  const double inverse_sqrt_correction2 = 1 / std::sqrt(1 - std::pow(params.beta2, s.step));
  visit_f32_f64("adam_update", w.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, float>) {
      const simd::AdamStep step{.w = data_of<float>(w),
                                .g = data_of<float>(gradient),
                                .m = data_of<float>(first_moment),
                                .v = data_of<float>(second_moment),
                                .learning_rate = static_cast<float>(s.learning_rate),
                                .beta1 = params.beta1,
                                .beta2 = params.beta2,
                                .eps = static_cast<float>(params.eps),
                                .weight_decay = static_cast<float>(params.weight_decay),
                                .grad_scale = static_cast<float>(s.gradient_scale),
                                .step_size = static_cast<float>(step_size),
                                .inverse_sqrt_correction2 = static_cast<float>(inverse_sqrt_correction2),
                                .decoupled_weight_decay = params.decoupled};
      parallel_for(w.numel(), kGrain / 2, [&](std::int64_t begin, std::int64_t end) {
        simd::simd_kernels().adam_step(step, {begin, end});
      });
    } else {
      own_adam(w, gradient, first_moment, second_moment, params, s, step_size, inverse_sqrt_correction2);
    }
  });
}

}  // namespace heddle::cpu
