// Gradients of values used several times (C07), of operands that are broadcast (C09), and graphs of other shapes.
#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;

namespace {
using List = std::vector<double>;

Variable scalar(double value) { return leaf({}, {value}); }

// (2x, 3x), one node with two outputs.
class SplitNode final : public Node {
 public:
  SplitNode() : Node(2) {}
  const char* name() const noexcept override { return "split"; }
  void backward(BackwardContext& ctx) override {
    reached = {ctx.has_grad_output(0), ctx.has_grad_output(1)};
    const double dx = 2 * ctx.grad_output(0).item() + 3 * ctx.grad_output(1).item();
    ctx.give(0, Tensor::full({}, dx));
  }
  void release() noexcept override {}
  std::pair<bool, bool> reached;
};

std::pair<Variable, Variable> split(const Variable& x, const std::shared_ptr<SplitNode>& node) {
  const Tensor a = Tensor::full({}, 2 * x.data().item()), b = Tensor::full({}, 3 * x.data().item());
  node->set_inputs({&x});
  node->set_output(0, a);
  node->set_output(1, b);
  return {Variable::from_node(a, node, 0), Variable::from_node(b, node, 1)};
}
}  // namespace

TEST_CASE("a value used several times collects every contribution") {
  SECTION("through an intermediate value") {
    Variable x = scalar(2);
    const Variable y = 3.0 * x;
    backward(2.0 * y + 5.0 * y);
    CHECK(x.grad().item() == 21);
  }
  SECTION("products of three in every order") {
    Variable x = scalar(1);
    const Variable k = scalar(1);
    backward(x * (x * k) + x * (x * k) + (x * x) * k);
    CHECK(x.grad().item() == 6);
  }
  SECTION("a square") {
    Variable x = scalar(3);
    backward(x * x);
    CHECK(x.grad().item() == 6);
  }
  SECTION("a square of an intermediate value") {
    Variable x = scalar(2);
    const Variable y = 3.0 * x;
    backward(y * y);
    CHECK(x.grad().item() == 36);
  }
  SECTION("a residual around a ReLU") {
    Variable x = scalar(2);
    backward(x + ops::relu(x));
    CHECK(x.grad().item() == 2);
  }
}

TEST_CASE("a layer applied twice sums its gradients") {
  Variable w = leaf({1, 1}, {3}), b = leaf({1}, {1});
  const Variable x = values({1, 1}, {2});
  backward(ops::sum(ops::linear(ops::linear(x, w, b), w, b)));  // w (w x + b) + b
  CHECK(w.grad().item() == 2 * 3 * 2 + 1);
  CHECK(b.grad().item() == 3 + 1);

  Variable k = leaf({1, 1, 1, 1}, {3}), c = leaf({1}, {1});
  const Variable image = values({1, 1, 1, 1}, {2});
  backward(ops::sum(ops::conv2d(ops::conv2d(image, k, c), k, c)));
  CHECK(k.grad().item() == 13);
  CHECK(c.grad().item() == 4);
}

TEST_CASE("a weight shared by layers with biases of their own") {
  Variable w = leaf({1, 1}, {3}), b1 = leaf({1}, {1}), b2 = leaf({1}, {10});
  backward(ops::sum(ops::linear(ops::linear(values({1, 1}, {2}), w, b1), w, b2)));
  CHECK(w.grad().item() == 13);
  CHECK(b1.grad().item() == 3);
  CHECK(b2.grad().item() == 1);
}

TEST_CASE("the same tensor passed twice to one op counts twice") {
  Variable x = leaf({1, 1, 1, 1}, {3});
  const auto gradient_of = [&](const Variable& y) {
    x.zero_grad();
    backward(ops::sum(y));
    return x.grad().item();
  };
  CHECK(gradient_of(x + x) == 2);
  CHECK(gradient_of(x - x) == 0);
  CHECK(gradient_of(x * x) == 6);
  CHECK(gradient_of(x / x) == 0);
  CHECK(gradient_of(ops::maximum(x, x)) == 1);
  CHECK(gradient_of(ops::concat({x, x}, 2)) == 2);
  CHECK(gradient_of(ops::matmul(x, x)) == 6);
  CHECK(gradient_of(ops::conv2d(x, x)) == 6);
  CHECK(gradient_of(ops::mse_loss(x, x)) == 0);
  CHECK(gradient_of(ops::where(ops::gt(x, 0.0), x, x)) == 1);
  const Variable h = x * 1.0;  // the same of an intermediate value
  CHECK(gradient_of(h + h) == 2);
  CHECK(gradient_of(ops::linear(ops::reshape(x, {1, 1}), ops::reshape(x, {1, 1}))) == 6);
}

TEST_CASE("two passes without zeroing add up, and a released graph is refused by name") {
  Variable x = scalar(3);
  backward(x * x);
  backward(x * x);
  CHECK(x.grad().item() == 12);
  x.zero_grad();
  const Variable y = ops::exp(x * x) * 0.0 + x;
  backward(y, {}, {.retain_graph = true});
  backward(y);
  CHECK(x.grad().item() == 2);
  CHECK_THROWS_WITH(backward(y), Catch::Contains("released") && Catch::Contains("add"));
}

TEST_CASE("a gradient given to two inputs is not changed through one of them") {
  // add hands its gradient to both operands without a copy; each then collects a further contribution.
  Variable a = scalar(1), b = scalar(1);
  const Variable p = a * 2.0, q = b * 3.0;
  const Variable late = p * 5.0 + q * 7.0;
  backward((p + q) + late);
  CHECK(a.grad().item() == 2 * (1 + 5));
  CHECK(b.grad().item() == 3 * (1 + 7));
  Variable x = leaf({2}, {1, 2});
  const Tensor seed = values({2}, {10, 20});
  backward(ops::neg(x) + (x + x), {}, {.gradient = seed});
  CHECK(list(x.grad()) == List{10, 20});
  CHECK(list(seed) == List{10, 20});
}

TEST_CASE("a broadcast operand gets a gradient of its own shape") {
  const List counting{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const struct {
    Shape shape;
    List expected;
  } rows[] = {
      {{1, 4}, {15, 18, 21, 24}},
      {{4}, {15, 18, 21, 24}},
      {{3, 1}, {10, 26, 42}},
      {{}, {78}},
      {{1}, {78}},
      {{1, 1}, {78}},
  };
  for (const Device device : test_devices()) {
    for (const auto& row : rows) {
      INFO(row.shape);
      const Variable a = values({3, 4}, counting, DType::f32, device);
      Variable b = leaf(row.shape, List(row.expected.size(), 0.5), DType::f32, device);
      backward(ops::sum((a + b) * a));
      CHECK(b.grad().shape() == row.shape);
      CHECK(list(b.grad()) == row.expected);
      b.zero_grad();
      backward(ops::sum((b + a) * a));
      CHECK(list(b.grad()) == row.expected);
    }
  }
  CHECK_THROWS_WITH(ops::add(values({3, 4}, counting), values({3}, {1, 2, 3})),
                    Catch::Contains("(3,4)") && Catch::Contains("(3)"));
}

TEST_CASE("a convolution's bias gradient sums over batch and positions") {
  Variable b = leaf({2}, {0, 0});
  const Variable x = Tensor::full({3, 4, 5, 1}, 1.0), w = Tensor::full({2, 3, 3, 1}, 1.0);
  const Variable scale = values({2}, {1, 10});
  backward(ops::sum(ops::conv2d(x, w, b) * scale));
  CHECK(list(b.grad()) == List{3 * 2 * 3, 10 * 3 * 2 * 3});
}

TEST_CASE("tensors and scalars take part in arithmetic as constants") {
  const Tensor t = values({2}, {1, 2});
  Variable x = leaf({2}, {3, 4});
  const Variable y = 2 * (x * t - 1) / t + (1 - x) / 2 - -t;
  // 2 (3 - 1)/1 + (1-3)/2 + 1, 2 (8 - 1)/2 + (1-4)/2 + 2
  CHECK(list(y) == List{4, 7.5});
  backward(ops::sum(y));
  CHECK(list(x.grad()) == List{1.5, 1.5});
  CHECK_FALSE((t + t).requires_grad());
  CHECK(list(t + t) == List{2, 4});
}

TEST_CASE("a parameter that the loss does not use keeps a gradient of zero") {
  Variable used = scalar(2), unused = scalar(5);
  const Variable aside = unused * 3.0;
  int calls = 0;
  backward(used * used, [&](Variable& v) {
    ++calls;
    CHECK(v == used);
  });
  CHECK(calls == 1);
  CHECK(unused.grad_is_fresh());
  CHECK(unused.grad().item() == 0);
  CHECK(aside.requires_grad());
}

TEST_CASE("a node with several outputs takes a missing gradient as zero") {
  Variable x = scalar(1);
  const auto node = std::make_shared<SplitNode>();
  const auto [a, b] = split(x, node);
  backward(b * 10.0);
  CHECK(node->reached == std::make_pair(false, true));
  CHECK(x.grad().item() == 30);
  x.zero_grad();
  const auto [c, d] = split(x, std::make_shared<SplitNode>());
  backward(c * d);  // 6 x^2
  CHECK(x.grad().item() == 12);
}

TEST_CASE("a graph a hundred thousand ops deep runs and is freed") {
  Variable x = leaf({1}, {1});
  Variable y = x;
  for (int i = 0; i < 50000; ++i) y = ops::relu(y + 0.0);
  backward(y);
  CHECK(x.grad().item() == 1);
}

TEST_CASE("a graph that doubles at every level visits each op once") {
  Variable x = leaf({1}, {1});
  Variable y = x;
  for (int i = 0; i < 60; ++i) y = y + y;
  backward(y);
  CHECK(x.grad().item() == 0x1p60);
}

TEST_CASE("gradients flow through changes of dtype") {
  Variable x = leaf({2}, {1, 2});
  backward(ops::sum(ops::to(ops::to(x, DType::f64) * 3.0, DType::f32)));
  CHECK(x.grad().dtype() == DType::f32);
  CHECK(list(x.grad()) == List{3, 3});
  CHECK_FALSE(ops::to(x, DType::i64).requires_grad());
  CHECK(ops::to(x, DType::f32) == x);
}
