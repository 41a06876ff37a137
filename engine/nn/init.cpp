#include "engine/nn/init.h"

#include <cmath>
#include <vector>

namespace heddle::nn::init {
namespace {

// Writes draw() to every element, in memory order.
template <class T, class Draw>
void fill_as(Tensor& w, const Draw& draw) {
  std::vector<T> values(static_cast<std::size_t>(w.numel()));
  for (T& value : values) value = static_cast<T>(draw());
  w.copy_from(Tensor::from_values(values, w.shape()));
}

template <class Draw>
void fill_with(Tensor& w, const Draw& draw) {
  HEDDLE_CHECK(w.defined() && (w.dtype() == DType::f32 || w.dtype() == DType::f64),
               "init: the parameter must be f32 or f64, got ", w.dtype(), " ", w.shape());
  if (w.dtype() == DType::f32) {
    fill_as<float>(w, draw);
  } else {
    fill_as<double>(w, draw);
  }
}

double fan_of(const Shape& weight, FanMode mode) {
  const Fans fans = fans_of(weight);
  return static_cast<double>(mode == FanMode::fan_in ? fans.in : fans.out);
}

double kaiming_deviation(const Shape& weight, const KaimingOptions& options) {
  return gain_of(options.nonlinearity, options.negative_slope) / std::sqrt(fan_of(weight, options.mode));
}

double xavier_deviation(const Shape& weight, double gain) {
  const Fans fans = fans_of(weight);
  return gain * std::sqrt(2.0 / static_cast<double>(fans.in + fans.out));
}

}  // namespace

Fans fans_of(const Shape& weight) {
  HEDDLE_CHECK(weight.rank() >= 2 && weight.numel() > 0, "init: a weight of shape ", weight,
               " has no fan; it needs two or more dimensions");
  return {weight.numel() / weight[0], weight[0] * weight.numel_between(1, weight.rank() - 1)};
}

double gain_of(Nonlinearity nonlinearity, double negative_slope) {
  switch (nonlinearity) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid: return 1.0;
    case Nonlinearity::tanh: return 5.0 / 3.0;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2.0 / (1.0 + negative_slope * negative_slope));
  }
  return 1.0;
}

void zeros(Tensor w) { constant(std::move(w), 0.0); }

void ones(Tensor w) { constant(std::move(w), 1.0); }

void constant(Tensor w, double value) {
  fill_with(w, [&] { return value; });
}

void uniform(Tensor w, double low, double high, Philox& random) {
  HEDDLE_CHECK(low <= high && std::isfinite(high - low), "init: uniform between ", low, " and ", high);
  fill_with(w, [&] { return low + (high - low) * static_cast<double>(random.uniform()); });
}

void normal(Tensor w, double mean, double stddev, Philox& random) {
  HEDDLE_CHECK(std::isfinite(mean) && std::isfinite(stddev) && stddev >= 0, "init: normal with mean ", mean,
               " and deviation ", stddev);
  fill_with(w, [&] { return mean + stddev * random.normal(); });
}

void kaiming_uniform(Tensor w, Philox& random, const KaimingOptions& options) {
  const double bound = std::sqrt(3.0) * kaiming_deviation(w.shape(), options);
  uniform(std::move(w), -bound, bound, random);
}

void kaiming_normal(Tensor w, Philox& random, const KaimingOptions& options) {
  const double deviation = kaiming_deviation(w.shape(), options);
  normal(std::move(w), 0.0, deviation, random);
}

void xavier_uniform(Tensor w, Philox& random, double gain) {
  const double bound = std::sqrt(3.0) * xavier_deviation(w.shape(), gain);
  uniform(std::move(w), -bound, bound, random);
}

void xavier_normal(Tensor w, Philox& random, double gain) {
  const double deviation = xavier_deviation(w.shape(), gain);
  normal(std::move(w), 0.0, deviation, random);
}

void torch_default(Tensor weight, Tensor bias, Philox& random) {
  const double bound = 1.0 / std::sqrt(fan_of(weight.shape(), FanMode::fan_in));
  kaiming_uniform(std::move(weight), random, {.negative_slope = std::sqrt(5.0)});
  if (bias.defined()) uniform(std::move(bias), -bound, bound, random);
}

}  // namespace heddle::nn::init
