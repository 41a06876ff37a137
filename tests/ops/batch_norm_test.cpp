// What batch norm's ops promise beyond values and gradients: what is refused, what is left alone, and what a bias in
// front of them is spared.
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

struct Channels {
  explicit Channels(std::int64_t n, Device device = Device::cpu())
      : scale(Tensor::full({n}, 1.0, DType::f32, device), true),
        shift(Tensor::full({n}, 0.0, DType::f32, device), true),
        mean(Tensor::full({n}, 0.0, DType::f32, device)),
        var(Tensor::full({n}, 1.0, DType::f32, device)) {}
  ops::BatchNormOptions options(bool training = true) const {
    return {.training = training, .running_mean = mean, .running_var = var};
  }
  Variable scale, shift;
  Tensor mean, var;
};

Tensor random_f32(const Shape& shape, std::uint64_t seed, Device device = Device::cpu()) {
  return tensor_of(random_array(shape, -1, 1, seed), DType::f32, device);
}

void run_backward(const Variable& y, std::uint64_t seed) {
  backward(y, {}, {.gradient = random_f32(y.shape(), seed, y.device())});
}

}  // namespace

TEST_CASE("a batch of one row is refused in training, naming the shape, and nothing is changed") {
  for (const Device device : test_devices()) {
    const Channels c(3, device);
    const Variable x(Tensor::full({1, 1, 1, 3}, 2.0, DType::f32, device), true);
    CHECK_THROWS_WITH(ops::batch_norm(x, c.scale, c.shift, c.options()),
                      Catch::Contains("one value per channel") && Catch::Contains("(1,1,1,3)"));
    CHECK_THROWS_AS(ops::batch_norm_add_relu(x, x, c.scale, c.shift, c.options()), InvalidArgument);
    CHECK(list(c.mean) == std::vector<double>(3, 0));
    CHECK(list(c.var) == std::vector<double>(3, 1));
    const Variable y = ops::batch_norm(x, c.scale, c.shift, c.options(false));
    CHECK(differs(list(y), std::vector<double>(3, 2 / std::sqrt(1 + 1e-5))) == "");
  }
}

TEST_CASE("batch norm refuses what does not fit, naming both sides") {
  const Channels c(3);
  const Tensor x = random_f32({2, 2, 2, 3}, 1);
  CHECK_THROWS_WITH(ops::batch_norm(x, Channels(4).scale, c.shift, c.options()),
                    Catch::Contains("3 channels") && Catch::Contains("scale") && Catch::Contains("(4)"));
  CHECK_THROWS_WITH(ops::batch_norm(x, c.scale, c.shift, Channels(2).options()), Catch::Contains("running_mean"));
  CHECK_THROWS_WITH(ops::batch_norm(x, c.scale, c.shift, {.training = false}), Catch::Contains("running_mean"));
  CHECK_THROWS_WITH(ops::batch_norm(x, c.scale, c.shift, {.eps = 0}), Catch::Contains("eps"));
  CHECK_THROWS_WITH(ops::batch_norm(x, c.scale, c.shift, {.momentum = 1.5}), Catch::Contains("momentum"));
  CHECK_THROWS_WITH(ops::batch_norm_add_relu(x, random_f32({2, 2, 3}, 2), c.scale, c.shift, c.options()),
                    Catch::Contains("addend") && Catch::Contains("(2,2,3)"));
  CHECK_THROWS_AS(ops::batch_norm(tensor_of(array_of(x), DType::f64), c.scale, c.shift, c.options()), InvalidArgument);
  CHECK(list(c.mean) == std::vector<double>(3, 0));
}

TEST_CASE("a batch without rows gives one without rows, and changes nothing") {
  for (const Device device : test_devices()) {
    Channels c(3, device);
    const Variable x(Tensor::empty({0, 2, 2, 3}, DType::f32, device), true);
    const Variable y = ops::batch_norm_relu(x, c.scale, c.shift, c.options());
    CHECK(y.shape() == Shape{0, 2, 2, 3});
    run_backward(y, 1);
    CHECK(list(c.scale.grad()) == std::vector<double>(3, 0));
    CHECK(list(c.var) == std::vector<double>(3, 1));
  }
}

TEST_CASE("the bias in front of a batch norm has the gradient 0 with batch statistics only") {
  for (const Device device : test_devices()) {
    Channels c(4, device);
    const Tensor x = random_f32({3, 4, 4, 2}, 1, device);
    Variable w(random_f32({4, 3, 3, 2}, 2, device), true), b(random_f32({4}, 3, device), true);
    const auto gradients = [&](const Variable& y) {
      w.zero_grad();
      b.zero_grad();
      run_backward(y, 4);
      bool moves = false;
      for (const double g : list(w.grad())) moves = moves || std::abs(g) > 1e-3;
      CHECK(moves);
      return list(b.grad());
    };
    const std::vector<double> zero(4, 0);
    const auto largest = [](const std::vector<double>& v) {
      double top = 0;
      for (const double g : v) top = std::max(top, std::abs(g));
      return top;
    };
    CHECK(gradients(ops::batch_norm(ops::conv2d(x, w, b), c.scale, c.shift, c.options())) == zero);
    CHECK(gradients(ops::batch_norm_relu(ops::conv2d(x, w, b), c.scale, c.shift, c.options())) == zero);
    Variable y = ops::conv2d(x, w, b);
    CHECK(gradients(ops::batch_norm_add_relu(y, Tensor::full(y.shape(), 0.1, DType::f32, device), c.scale, c.shift,
                                             c.options())) == zero);
    // Constant statistics, a second consumer, and a ReLU between: the bias counts.
    CHECK(largest(gradients(ops::batch_norm(ops::conv2d(x, w, b), c.scale, c.shift, c.options(false)))) > 1e-3);
    y = ops::conv2d(x, w, b);
    CHECK(largest(gradients(ops::batch_norm(y, c.scale, c.shift, c.options()) + y)) > 1e-3);
    y = ops::conv2d(x, w, b);
    CHECK(largest(gradients(ops::batch_norm_add_relu(y, y, c.scale, c.shift, c.options()))) > 1e-3);
    CHECK(largest(gradients(ops::batch_norm(ops::conv2d_relu(x, w, b), c.scale, c.shift, c.options()))) > 1e-3);
  }
}

TEST_CASE("x as its own addend, and one variable as scale and shift, collect both contributions") {
  for (const Device device : test_devices()) {
    const Tensor values = random_f32({4, 2, 2, 3}, 1, device);
    const auto gradient = [&](bool own) {
      Channels c(3, device);
      Variable x(values, true);
      const Variable addend = own ? x : x * 1.0, scale = c.scale, shift = own ? c.scale : c.scale * 1.0;
      run_backward(ops::batch_norm_add_relu(x, addend, scale, shift, c.options()), 5);
      std::vector<double> all = list(x.grad());
      for (const double g : list(c.scale.grad())) all.push_back(g);
      return all;
    };
    CHECK(differs(gradient(true), gradient(false)) == "");
  }
}

TEST_CASE("running statistics changed between the passes do not change the gradient") {
  for (const bool training : {true, false}) {
    const Channels c(3);
    Variable x(random_f32({5, 3}, 1), true);
    const auto gradient = [&](bool change) {
      x.zero_grad();
      const Variable y = ops::batch_norm(x, c.scale, c.shift, c.options(training));
      Tensor mean = c.mean;
      if (change) mean.copy_from(Tensor::full({3}, 7.0));
      run_backward(y, 2);
      mean.copy_from(Tensor::full({3}, 0.0));
      return list(x.grad());
    };
    CHECK(gradient(true) == gradient(false));
  }
}

TEST_CASE("frozen operands get no gradient and the others are the same") {
  for (const Device device : test_devices()) {
    const Tensor values = random_f32({4, 2, 2, 3}, 1, device), other = random_f32({4, 2, 2, 3}, 2, device);
    const auto run = [&](bool x_on, bool scale_on, bool shift_on, bool addend_on) {
      Channels c(3, device);
      Variable x(values, x_on), addend(other, addend_on);
      c.scale.set_requires_grad(scale_on);
      c.shift.set_requires_grad(shift_on);
      run_backward(ops::batch_norm_add_relu(x, addend, c.scale, c.shift, c.options()), 5);
      std::vector<std::vector<double>> all;
      for (Variable* v : {&x, &c.scale, &c.shift, &addend}) {
        all.push_back(v->requires_grad() ? list(v->grad()) : std::vector<double>());
      }
      return all;
    };
    const auto all = run(true, true, true, true);
    for (int bits = 1; bits < 15; ++bits) {
      const auto some = run((bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0);
      for (std::size_t i = 0; i < 4; ++i) {
        if (!some[i].empty()) CHECK(some[i] == all[i]);
      }
    }
  }
}
