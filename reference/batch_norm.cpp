#include <cmath>

#include "reference/reference.h"

namespace heddle::reference {
namespace {

std::int64_t rows_of(const Array& x) { return x.dim(-1) == 0 ? 0 : x.numel() / x.dim(-1); }

}  // namespace

BatchNorm batch_norm_forward(const Array& x, const Array& scale, const Array& shift, const Array& addend,
                             const BatchNormSettings& settings, const Array& running_mean, const Array& running_var) {
  const std::int64_t channels = x.dim(-1), rows = rows_of(x);
  BatchNorm result{Array(x.shape), Array({channels}), Array({channels}), running_mean, running_var};
  for (std::int64_t c = 0; c < channels; ++c) {
    double mean = 0, squares = 0;
    for (std::int64_t r = 0; r < rows; ++r) mean += x[r * channels + c];
    mean /= static_cast<double>(rows);
    for (std::int64_t r = 0; r < rows; ++r) squares += std::pow(x[r * channels + c] - mean, 2);
    double var = squares / static_cast<double>(rows);
    if (settings.batch_statistics) {
      const double m = settings.momentum, unbiased = squares / static_cast<double>(rows - 1);
      if (running_mean.defined()) {
        result.running_mean[c] = (1 - m) * running_mean[c] + m * mean;
        result.running_var[c] = (1 - m) * running_var[c] + m * unbiased;
      }
    } else {
      mean = running_mean[c];
      var = running_var[c];
    }
    result.mean[c] = mean;
    result.inv_std[c] = 1 / std::sqrt(var + settings.eps);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t i = r * channels + c;
      double y = scale[c] * (x[i] - mean) * result.inv_std[c] + shift[c];
      if (addend.defined()) y += addend[i];
      result.y[i] = settings.relu && y < 0 ? 0 : y;
    }
  }
  return result;
}

BatchNormGradients batch_norm_backward(const Array& x, const Array& dy, const Array& scale, const BatchNorm& forward,
                                       const BatchNormSettings& settings, const Array& x_relu_mask) {
  const std::int64_t channels = x.dim(-1), rows = rows_of(x);
  BatchNormGradients g{Array(x.shape), Array({channels}), Array({channels}), dy};
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (settings.relu && !(forward.y[i] > 0)) g.daddend[i] = 0;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto xhat = [&](std::int64_t r) { return (x[r * channels + c] - forward.mean[c]) * forward.inv_std[c]; };
    for (std::int64_t r = 0; r < rows; ++r) {
      g.dshift[c] += g.daddend[r * channels + c];
      g.dscale[c] += g.daddend[r * channels + c] * xhat(r);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t i = r * channels + c;
      double dxhat = g.daddend[i];
      // The statistics move with x: their part of the gradient.
      if (settings.batch_statistics) dxhat -= (g.dshift[c] + xhat(r) * g.dscale[c]) / static_cast<double>(rows);
      g.dx[i] = scale[c] * forward.inv_std[c] * dxhat;
      if (x_relu_mask.defined() && !(x_relu_mask[i] > 0)) g.dx[i] = 0;
    }
  }
  return g;
}

}  // namespace heddle::reference
