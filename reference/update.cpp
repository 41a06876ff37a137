// The formulas as PyTorch's documentation of torch.optim states them.
#include <cmath>

#include "reference/reference.h"

namespace heddle::reference {

Array prepare_update(const Array& gradients, const Array& tail, double max_norm, bool divide) {
  Array result({step_scalar::kCount});
  double squares = 0;
  bool finite = true;
  for (const double g : gradients.values) {
    finite = finite && std::isfinite(g);
    squares += g * g;
  }
  const double weight_sum = divide ? tail[tail_slot::kWeightSum] : 1;
  const double scale = weight_sum == 0 ? 0 : 1 / weight_sum;
  const double norm = std::sqrt(squares) * scale;
  const double clip = max_norm > 0 ? std::fmin(1, max_norm / (norm + 1e-6)) : 1;
  result[step_scalar::kGradientScale] = scale * clip;
  result[step_scalar::kGradientNorm] = norm;
  result[step_scalar::kSkip] = finite && !(tail[tail_slot::kNonFinite] > 0) ? 0 : 1;
  return result;
}

SgdState sgd_update(const Array& w, const Array& gradient, const Array& velocity, const SgdRange& range,
                    const UpdateValues& values) {
  SgdState next{w, velocity};
  const SgdParams& params = range.params;
  const double learning_rate = values.learning_rate * params.learning_rate_scale;
  for (std::int64_t i = range.begin; i < range.begin + range.numel; ++i) {
    double g = gradient[i] * values.gradient_scale + params.weight_decay * w[i];
    if (params.momentum != 0) {
      next.velocity[i] = params.momentum * velocity[i] + g;
      g = params.nesterov ? g + params.momentum * next.velocity[i] : next.velocity[i];
    }
    next.w[i] = w[i] - learning_rate * g;
  }
  return next;
}

AdamState adam_update(const Array& w, const Array& gradient, const Array& first_moment, const Array& second_moment,
                      const AdamRange& range, const UpdateValues& values) {
  AdamState next{w, first_moment, second_moment};
  const AdamParams& params = range.params;
  const double learning_rate = values.learning_rate * params.learning_rate_scale;
  for (std::int64_t i = range.begin; i < range.begin + range.numel; ++i) {
    double g = gradient[i] * values.gradient_scale;
    if (params.decoupled) {
      next.w[i] -= learning_rate * params.weight_decay * w[i];
    } else {
      g += params.weight_decay * w[i];
    }
    next.first_moment[i] = params.beta1 * first_moment[i] + (1 - params.beta1) * g;
    next.second_moment[i] = params.beta2 * second_moment[i] + (1 - params.beta2) * g * g;
    const double m = next.first_moment[i] / (1 - std::pow(params.beta1, values.step));
    const double v = next.second_moment[i] / (1 - std::pow(params.beta2, values.step));
    next.w[i] -= learning_rate * m / (std::sqrt(v) + params.eps);
  }
  return next;
}

}  // namespace heddle::reference
