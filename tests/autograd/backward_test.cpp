// The machinery of backward passes, with a small op made here; the ops themselves are tested in tests/ops.
#include "engine/autograd/backward.h"

#include <functional>

#include "engine/autograd/grad_check.h"
#include "engine/autograd/node.h"
#include "engine/ops/ops.h"
#include "tests/support/catch.h"

using namespace heddle;

namespace {

// y = k x, on one-element f32 tensors.
class ScaleNode final : public Node {
 public:
  explicit ScaleNode(float k) : k_(k) {}
  const char* name() const noexcept override { return "scale"; }
  void backward(BackwardContext& ctx) override {
    const float dy = ctx.grad_output().host_data<float>()[0];
    GradTarget dx = ctx.target(0);
    float* out = dx.tensor.mutable_host_data<float>();
    out[0] = dx.mode == WriteMode::store ? k_ * dy : out[0] + k_ * dy;
  }
  void release() noexcept override {}

 private:
  float k_;
};

Variable scale(const Variable& x, float k) {
  Tensor y = Tensor::full({1}, k * x.data().host_data<float>()[0]);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<ScaleNode>(k), {&x});
}

// Asks for what it does not have.
class StrayNode final : public Node {
 public:
  explicit StrayNode(std::function<void(BackwardContext&)> ask) : ask_(std::move(ask)) {}
  const char* name() const noexcept override { return "stray"; }
  void backward(BackwardContext& ctx) override { ask_(ctx); }
  void release() noexcept override {}

 private:
  std::function<void(BackwardContext&)> ask_;
};

}  // namespace

TEST_CASE("a chain of a million nodes runs backward and is freed without recursion") {
  Variable x(Tensor::full({1}, 1.0), true);
  Variable y = x;
  for (int i = 0; i < 1000000; ++i) y = scale(y, 1.f);
  backward(y);
  CHECK(x.grad().item() == 1.0);
}

TEST_CASE("two backward passes add up, and zero_grad makes the next one store") {
  Variable x(Tensor::full({1}, 1.0), true);
  backward(scale(x, 3.f));
  backward(scale(x, 4.f));
  CHECK(x.grad().item() == 7.0);
  x.zero_grad();
  backward(scale(x, 5.f));
  CHECK(x.grad().item() == 5.0);
  x.zero_grad();
  CHECK(x.grad().item() == 0.0);
}

TEST_CASE("a second backward over released values, and a second order, are clear errors") {
  Variable x(Tensor::full({1}, 1.0), true);
  Variable y = scale(x, 3.f);
  backward(y);
  CHECK_THROWS_WITH(backward(y), Catch::Contains("released") && Catch::Contains("scale"));
  Variable z = scale(x, 2.f);
  CHECK_THROWS_AS(backward(z, {}, {.create_graph = true}), NotSupported);
  backward(z, {}, {.retain_graph = true});
  backward(z);
  CHECK(x.grad().item() == 7.0);
}

TEST_CASE("an op that asks for an input or output that it does not have is named, with their number") {
  const auto message = [](const std::function<void(BackwardContext&)>& ask) {
    const Variable x(Tensor::full({1}, 1.0), true), constant(Tensor::full({1}, 1.0));
    const Variable y = make_result(Tensor::full({1}, 1.0), std::make_shared<StrayNode>(ask), {&x, &constant});
    try {
      backward(y);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto names = [](const std::string& text, const std::string& what, const std::string& number) {
    return text.find("backward of stray: " + what) == 0 && text.find("the op has " + number) != std::string::npos;
  };
  CHECK(names(message([](BackwardContext& ctx) { ctx.target(2); }), "input", "2"));
  CHECK(names(message([](BackwardContext& ctx) { ctx.give(-1, Tensor::full({1}, 1.0)); }), "input", "2"));
  CHECK(names(message([](BackwardContext& ctx) { ctx.needs_grad(9); }), "input", "2"));
  CHECK(names(message([](BackwardContext& ctx) { ctx.take_relu_mask(7); }), "input", "2"));
  CHECK(names(message([](BackwardContext& ctx) { ctx.grad_output(1); }), "output", "1"));
  CHECK(names(message([](BackwardContext& ctx) { ctx.has_grad_output(-1); }), "output", "1"));
  CHECK(names(message([](BackwardContext& ctx) { ctx.grad_output_is_one(1); }), "output", "1"));
  CHECK(names(message([](BackwardContext& ctx) { ctx.grad_output_is_masked(1); }), "output", "1"));
  CHECK_THAT(message([](BackwardContext& ctx) { ctx.target(1); }), Catch::Contains("needs none"));
}

TEST_CASE("what is undefined is called so") {
  const auto undefined = Catch::Contains("undefined variable");
  CHECK_THROWS_WITH(Variable().grad(), undefined);
  CHECK_THROWS_WITH(Variable().zero_grad(), undefined);
  CHECK_THROWS_WITH(Variable().set_requires_grad(true), undefined);
  CHECK_THROWS_WITH(grad_check({}, {Tensor::zeros({1}, DType::f64)}), Catch::Contains("no function"));
}

TEST_CASE("the hook meets each leaf once, when its gradient is complete") {
  Variable x(Tensor::full({1}, 1.0), true);
  Variable y = scale(scale(x, 2.f), 3.f);
  int calls = 0;
  backward(y, [&](Variable& leaf) {
    ++calls;
    CHECK(leaf == x);
    CHECK(leaf.grad().item() == 6.0);
  });
  CHECK(calls == 1);
}

TEST_CASE("no history is recorded under the guard or for detached values") {
  Variable x(Tensor::full({1}, 1.0), true);
  {
    NoGradGuard guard;
    CHECK_FALSE(scale(x, 2.f).requires_grad());
  }
  CHECK_FALSE(scale(x.detach(), 2.f).requires_grad());
  CHECK_THROWS_AS(backward(Variable(Tensor::full({1}, 1.0))), InvalidArgument);
}

TEST_CASE("a leaf that is given another tensor gets a gradient of the new shape") {
  Variable x(Tensor::full({4, 8}, 1), true);
  const Variable w(Tensor::full({3, 8}, 2), true);
  backward(ops::sum(ops::linear(x, w)));
  CHECK(x.grad().shape() == Shape{4, 8});
  x.mutable_data() = Tensor::full({16, 8}, 1);
  // The old gradient does not fit, and was not given up.
  CHECK_THROWS_AS(backward(ops::sum(ops::linear(x, w))), InvalidArgument);
  x.zero_grad();
  backward(ops::sum(ops::linear(x, w)));
  CHECK(x.grad().shape() == Shape{16, 8});
  CHECK(x.grad().to_vector<float>() == std::vector<float>(128, 6));
  x.mutable_data() = Tensor::full({2, 8}, 1);
  x.zero_grad();
  CHECK(x.grad().to_vector<float>() == std::vector<float>(16, 0));
}
