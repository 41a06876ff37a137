// Bounds, moments and repeatability of initial values.
#include "engine/nn/init.h"

#include <algorithm>
#include <cmath>

#include "engine/core/parallel.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/linear.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::nn;

namespace {

struct Moments {
  double mean = 0, deviation = 0, low = 0, high = 0;
};

Moments moments_of(const Tensor& w) {
  const auto v = w.to_vector<float>();
  Moments m;
  for (const float x : v) m.mean += static_cast<double>(x) / static_cast<double>(v.size());
  for (const float x : v) m.deviation += std::pow(static_cast<double>(x) - m.mean, 2) / static_cast<double>(v.size());
  m.deviation = std::sqrt(m.deviation);
  m.low = static_cast<double>(*std::min_element(v.begin(), v.end()));
  m.high = static_cast<double>(*std::max_element(v.begin(), v.end()));
  return m;
}

// All elements lie in +-bound and come close to it; mean and deviation are a uniform distribution's.
void check_uniform(const Tensor& w, double bound) {
  const Moments m = moments_of(w);
  CHECK(m.low >= -bound);
  CHECK(m.high <= bound);
  CHECK(m.high > 0.99 * bound);
  CHECK(m.low < -0.99 * bound);
  CHECK(std::abs(m.mean) < 0.02 * bound);
  CHECK(m.deviation == Approx(bound / std::sqrt(3.0)).epsilon(0.02));
}

}  // namespace

TEST_CASE("fans count inputs and outputs of linear, convolution and grouped weights") {
  CHECK(init::fans_of({10, 20}).in == 20);
  CHECK(init::fans_of({10, 20}).out == 10);
  CHECK(init::fans_of({16, 5, 3, 6}).in == 90);
  CHECK(init::fans_of({16, 5, 3, 6}).out == 240);
  CHECK_THROWS_AS(init::fans_of({10}), InvalidArgument);
}

TEST_CASE("initialisers have the bounds and deviations of their formulas") {
  Tensor w = Tensor::zeros({100, 200});  // fan_in 200, fan_out 100
  Philox random(5);
  init::kaiming_uniform(w, random, {.nonlinearity = init::Nonlinearity::relu});
  check_uniform(w, std::sqrt(6.0 / 200));
  init::kaiming_uniform(w, random, {.mode = init::FanMode::fan_out, .nonlinearity = init::Nonlinearity::linear});
  check_uniform(w, std::sqrt(3.0 / 100));
  init::xavier_uniform(w, random, 2.0);
  check_uniform(w, 2 * std::sqrt(6.0 / 300));
  init::uniform(w, -0.5, 0.5, random);
  check_uniform(w, 0.5);
  init::kaiming_normal(w, random, {.nonlinearity = init::Nonlinearity::relu});
  CHECK(moments_of(w).deviation == Approx(std::sqrt(2.0 / 200)).epsilon(0.02));
  init::xavier_normal(w, random);
  CHECK(moments_of(w).deviation == Approx(std::sqrt(2.0 / 300)).epsilon(0.02));
  init::normal(w, 3.0, 0.5, random);
  CHECK(moments_of(w).mean == Approx(3.0).epsilon(0.01));
  CHECK(moments_of(w).deviation == Approx(0.5).epsilon(0.02));
  init::ones(w);
  CHECK(moments_of(w).low == 1.0);
  init::zeros(w);
  CHECK(moments_of(w).high == 0.0);
  CHECK_THROWS_AS(init::normal(w, 0.0, -1.0, random), InvalidArgument);
}

TEST_CASE("layers begin with PyTorch's defaults: uniform in 1/sqrt(fan_in), weight and bias") {
  Philox random(9);
  Linear linear(400, 300);
  linear.reset_parameters(random);
  check_uniform(linear.weight().data(), 0.05);
  CHECK(moments_of(linear.bias().data()).high <= 0.05);
  CHECK(moments_of(linear.bias().data()).high > 0.045);
  Conv2d conv(16, 256, {.kernel_size = 5});
  conv.reset_parameters(random);
  check_uniform(conv.weight().data(), 0.05);
}

TEST_CASE("initial values are the same for any number of threads") {
  const auto draw = [](int threads) {
    const ThreadLimit limit(threads);
    Philox random(7);
    Linear linear(100, 50);
    linear.reset_parameters(random);
    return linear.weight().data().to_vector<float>();
  };
  CHECK(draw(1) == draw(3));
}
