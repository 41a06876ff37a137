// The batch norm layer: its numbers, modes, state and messages.
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/nn/activation.h"
#include "engine/nn/batch_norm.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/parameter_buffer.h"
#include "engine/nn/sequential.h"
#include "engine/ops/ops.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/relative_distance.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

struct Layer {
  explicit Layer(Device device, const nn::BatchNormOptions& options = {}) : norm(1, options) {
    norm.to(device);
    Philox random(1);
    norm.reset_parameters(random);
  }
  std::vector<float> forward(const Tensor& x) {
    return norm.forward(x.to(norm.weight().device())).data().to_vector<float>();
  }
  float mean() const { return norm.running_mean().data().to_vector<float>()[0]; }
  float var() const { return norm.running_var().data().to_vector<float>()[0]; }
  nn::BatchNorm2d norm;
};

Tensor one_to_four() { return Tensor::from_values<float>({1, 2, 3, 4}, {4, 1, 1, 1}); }

bool close(const std::vector<float>& value, const std::vector<double>& expected) {
  if (value.size() != expected.size()) return false;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (!(std::abs(static_cast<double>(value[i]) - expected[i]) <= 1e-6 * (1 + std::abs(expected[i])))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("BatchNorm2d has PyTorch's numbers: output, running statistics, evaluation") {
  for (const Device device : test_devices()) {
    INFO(device);
    Layer layer(device);
    CHECK(close(layer.forward(one_to_four()), {-1.3416354, -0.4472118, 0.4472118, 1.3416354}));
    CHECK(layer.mean() == Approx(0.25).epsilon(1e-6));
    CHECK(layer.var() == Approx(1.0666667).epsilon(1e-6));
    layer.norm.train(false);
    for (int i = 0; i < 2; ++i) {
      CHECK(close(layer.forward(one_to_four()), {0.7261810, 1.6944223, 2.6626636, 3.6309049}));
      CHECK(layer.mean() == Approx(0.25).epsilon(1e-6));
      CHECK(layer.var() == Approx(1.0666667).epsilon(1e-6));
    }
    layer.norm.train();
    layer.forward(one_to_four());
    CHECK(layer.mean() == Approx(0.475).epsilon(1e-6));
    CHECK(layer.var() == Approx(1.1266667).epsilon(1e-6));
  }
}

TEST_CASE("momentum is the share of the new value: 1 is the batch's own, 0 changes nothing") {
  for (const Device device : test_devices()) {
    Layer all(device, {.momentum = 1}), none(device, {.momentum = 0});
    all.forward(one_to_four());
    none.forward(one_to_four());
    CHECK(all.mean() == Approx(2.5));
    CHECK(all.var() == Approx(5.0 / 3));
    CHECK(none.mean() == 0);
    CHECK(none.var() == 1);
  }
}

TEST_CASE("a tiny eps takes the same formula, and eps 0 is refused") {
  for (const Device device : test_devices()) {
    for (const double eps : {1e-6, 1e-12}) {
      Layer layer(device, {.eps = eps});
      const double inv_std = 1 / std::sqrt(1.25 + eps);
      CHECK(close(layer.forward(one_to_four()), {-1.5 * inv_std, -0.5 * inv_std, 0.5 * inv_std, 1.5 * inv_std}));
      CHECK(close(layer.forward(Tensor::full({3, 2, 2, 1}, 5.0)), std::vector<double>(12, 0)));
      CHECK(std::isfinite(layer.var()));
    }
  }
  CHECK_THROWS_WITH(nn::BatchNorm2d(3, {.eps = 0}), Catch::Contains("eps"));
  CHECK_THROWS_WITH(nn::BatchNorm2d(3, {.momentum = 1.1}), Catch::Contains("momentum"));
  CHECK_THROWS_AS(nn::BatchNorm2d(0), InvalidArgument);
}

TEST_CASE("one value per channel in training is refused by layer and shape, and nothing is changed") {
  for (const Device device : test_devices()) {
    Layer layer(device);
    layer.forward(one_to_four());
    const float mean = layer.mean(), var = layer.var();
    CHECK_THROWS_WITH(layer.forward(Tensor::full({1, 1, 1, 1}, 2.0)),
                      Catch::Contains("BatchNorm2d(1") && Catch::Contains("(1,1,1,1)"));
    CHECK(layer.mean() == mean);
    CHECK(layer.var() == var);
    CHECK_THROWS_WITH(layer.forward(Tensor::full({4, 2, 2, 3}, 2.0)),
                      Catch::Contains("BatchNorm2d(1") && Catch::Contains("(4,2,2,3)"));
  }
}

TEST_CASE("BatchNorm2d names its parameters and buffers as PyTorch does, and starts at 1 and 0") {
  nn::BatchNorm2d norm(3);
  Philox random(1);
  norm.reset_parameters(random);
  std::vector<std::string> names;
  for (const auto& p : norm.named_parameters()) names.push_back(p.name);
  for (const auto& b : norm.named_buffers()) names.push_back(b.name);
  CHECK(names == std::vector<std::string>{"weight", "bias", "running_mean", "running_var"});
  CHECK(norm.weight().data().to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(norm.bias().data().to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(norm.running_mean().data().to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(norm.running_var().data().to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(norm.description() == "BatchNorm2d(3, eps=1e-05, momentum=0.1)");
}

TEST_CASE("Sequential runs a ReLU behind a batch norm in its pass, and the residual end in one") {
  for (const Device device : test_devices()) {
    const auto norm = std::make_shared<nn::BatchNorm2d>(2);
    nn::Sequential chain({norm, std::make_shared<nn::ReLU>()}, 2);
    chain.to(device);
    Philox random(1);
    chain.reset_parameters(random);
    const Variable x(Tensor::from_values<float>({-1, 2, 3, -4, 5, -6}, {3, 1, 1, 2}).to(device), true);
    const Variable y = chain.forward(x);
    CHECK(std::string(y.grad_node()->name()) == "batch_norm_relu");
    chain.reset_parameters(random);
    CHECK(y.data().to_vector<float>() == ops::relu(norm->forward(x)).data().to_vector<float>());
    const Variable sum = norm->forward_with_add_relu(x, x);
    CHECK(std::string(sum.grad_node()->name()) == "batch_norm_add_relu");
    CHECK(relative_distance(sum.data().to_vector<float>(), ops::relu(norm->forward(x) + x).data().to_vector<float>()) <
          1e-6);
  }
}

TEST_CASE("buffers stay out of the flat parameters and move with the model") {
  nn::BatchNorm2d norm(3);
  const nn::ParameterBuffer buffer(norm);
  CHECK(buffer.segments().size() == 2);
  CHECK(norm.num_parameters() == 6);
  for (const Device device : test_devices()) {
    norm.to(device);
    CHECK(norm.running_var().device() == device);
    CHECK(norm.running_var().data().to_vector<float>() == std::vector<float>{1, 1, 1});
  }
}
