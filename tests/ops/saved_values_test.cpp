// Values that a backward pass needs cannot be changed unnoticed (C08).
#include "engine/autograd/backward.h"
#include "engine/backend/backend.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;

namespace {
using List = std::vector<double>;
void overwrite(Tensor view) { backend_for(view.device()).fill(view, 7.0); }
}  // namespace

TEST_CASE("an unchanged result gives the true gradient") {
  Variable x = leaf({3}, {1, 2, 3});
  backward(ops::sum(ops::sigmoid(x)));
  CHECK(differs(list(x.grad()), {0.1966119, 0.1049936, 0.0451767}, 1e-6, 0) == "");
}

TEST_CASE("a changed result that the backward pass needs is an error that names the op") {
  Variable x = leaf({3}, {1, 2, 3});
  const Variable o = ops::sigmoid(x);
  const Variable loss = ops::sum(o);
  SECTION("through the variable") { overwrite(Variable(o).mutable_data()); }
  SECTION("through a detached alias") { overwrite(o.detach().mutable_data()); }
  SECTION("through a slice of the tensor") { overwrite(o.data().narrow(1, 1)); }
  SECTION("through a slice made by the op") { overwrite(ops::narrow(o, 0, 0, 2).data()); }
  SECTION("through a reshaped view of the tensor") { overwrite(o.data().reshape({3, 1})); }
  SECTION("through a reshaped view made by the op") { overwrite(ops::reshape(o, {1, 3}).data()); }
  SECTION("through a view of a view") { overwrite(ops::narrow(ops::reshape(o.detach(), {3, 1}), 0, 2, 1).data()); }
  SECTION("through a part with a counter of its own") { overwrite(o.data().slice_of_flat(2, {1})); }
  SECTION("through a part of such a part") { overwrite(o.data().slice_of_flat(1, {2}).slice_of_flat(0, {1})); }
  SECTION("by the host") { o.detach().mutable_data().mutable_host_data<float>()[0] = 7; }
  CHECK_THROWS_WITH(backward(loss), Catch::Contains("sigmoid") && Catch::Contains("changed"));
}

TEST_CASE("memory that the user owns is copied, so the gradient stays true") {
  std::vector<float> memory{1, 2, 3};
  Variable x(Tensor::wrap(memory.data(), {3}, DType::f32), true);
  const Variable cube = x * x * x;
  const Variable soft = ops::gelu(x * 0.0) + cube;
  memory = {100, 100, 100};
  backward(ops::sum(soft));
  CHECK(list(x.grad()) == List{3, 12, 27});

  // A view of the user's memory is the user's memory, too.
  std::vector<float> weights{1, 2, 3, 4};
  const Tensor w = Tensor::wrap(weights.data(), {2, 2}, DType::f32);
  Variable y = leaf({1, 2}, {1, 1});
  const Variable out = ops::linear(y, w.narrow(1, 1));
  weights = {0, 0, 0, 0};
  backward(out);
  CHECK(list(y.grad()) == List{3, 4});
}

TEST_CASE("weights changed between forward and backward are an error that names the op") {
  Variable w = leaf({1, 1}, {2}), k = leaf({1, 1, 1, 1}, {2});
  Variable x = leaf({1, 1}, {3}), image = leaf({1, 1, 1, 1}, {3});
  const Variable dense = ops::sum(ops::linear(x, w)), convolved = ops::sum(ops::conv2d_relu(image, k));
  const Variable product = ops::sum(ops::matmul(x, w));
  overwrite(w.mutable_data());
  overwrite(k.mutable_data());
  CHECK_THROWS_WITH(backward(dense), Catch::Contains("linear") && Catch::Contains("(1,1)"));
  CHECK_THROWS_WITH(backward(product), Catch::Contains("matmul"));
  CHECK_THROWS_WITH(backward(convolved), Catch::Contains("conv2d_relu") && Catch::Contains("(1,1,1,1)"));
}

TEST_CASE("changed indices, conditions and masks are errors, too") {
  Variable x = leaf({2, 2}, {1, 2, 3, 4});
  Tensor index = labels({1, 0});
  const Variable rows = ops::sum(ops::index_select(x, index));
  Tensor condition = values({2, 2}, {1, 0, 0, 1}, DType::u8);
  const Variable chosen = ops::sum(ops::where(condition, x, 2.0 * x));
  ops::MaxResult max = ops::max(x, 1);
  const Variable largest = ops::sum(max.values);
  index.mutable_host_data<std::int64_t>()[0] = 0;
  overwrite(condition);
  max.indices.mutable_host_data<std::int64_t>()[0] = 0;
  CHECK_THROWS_WITH(backward(rows), Catch::Contains("index_select"));
  CHECK_THROWS_WITH(backward(chosen), Catch::Contains("where"));
  CHECK_THROWS_WITH(backward(largest), Catch::Contains("max"));
}

TEST_CASE("the result of a fused ReLU is watched, whoever applies its mask") {
  Variable x = leaf({1, 2, 2, 1}, {1, -1, 2, -2});
  const Variable w = values({1, 1, 1, 1}, {1});
  SECTION("a consumer that does") {
    const Variable h = ops::conv2d_relu(x, w);
    const Variable loss = ops::sum(ops::avg_pool2d(h));
    overwrite(h.data());
    CHECK_THROWS_WITH(backward(loss), Catch::Contains("conv2d_relu"));
  }
  SECTION("a consumer that does not") {
    const Variable h = ops::relu(x);
    const Variable loss = ops::sum(h);
    overwrite(h.data());
    CHECK_THROWS_WITH(backward(loss), Catch::Contains("relu"));
  }
  SECTION("max pooling") {
    const Variable h = ops::relu_max_pool2d(x);
    const Variable loss = ops::sum(h);
    overwrite(h.data());
    CHECK_THROWS_WITH(backward(loss), Catch::Contains("relu_max_pool2d"));
  }
}

TEST_CASE("changes of values that nobody needs are no errors") {
  Backend& backend = backend_for(Device::cpu());
  SECTION("ReLU in place and a bias added in place after a convolution") {
    Variable x = leaf({1, 1, 2, 1}, {1, -1});
    Variable w = leaf({1, 1, 1, 1}, {2});
    Variable y = ops::conv2d(x, w);
    Tensor data = y.mutable_data();
    backend.unary(UnaryOp::relu, data, 0, 0, data);
    backend.axpy(1.0, values(y.shape(), {5, 5}), data);
    CHECK(list(y) == List{7, 5});
    backward(ops::sum(y));
    CHECK(list(x.grad()) == List{2, 2});
    CHECK(w.grad().item() == 0);
  }
  SECTION("operands of a sum, and a bias") {
    Variable a = leaf({2}, {1, 2}), b = leaf({2}, {1, 2});
    const Variable y = ops::sum(ops::linear(values({1, 1}, {1}), values({2, 1}, {1, 1}), a) + (a - b));
    overwrite(a.mutable_data());
    overwrite(b.mutable_data());
    backward(y);
    CHECK(list(a.grad()) == List{2, 2});
    CHECK(list(b.grad()) == List{-1, -1});
  }
  SECTION("weights updated after the pass, then used again") {
    Variable w = leaf({1, 1}, {2});
    for (const double expected : {3.0, 6.0}) {
      const Variable x = values({1, 1}, {3});
      backward(ops::sum(ops::linear(x, w)));
      CHECK(w.grad().item() == expected);
      backend.axpy(-0.1, w.grad(), w.mutable_data());
    }
  }
  SECTION("the weight is needed only for an input that wants no gradient") {
    Variable w = leaf({1, 1}, {2});
    const Variable y = ops::sum(ops::linear(values({1, 1}, {3}), w));
    overwrite(w.mutable_data());
    backward(y);
    CHECK(w.grad().item() == 3);
  }
  SECTION("one parameter of a flat buffer changes while another's value is saved") {
    Tensor flat = values({4}, {1, 2, 3, 4});
    Variable first(flat.slice_of_flat(0, {2}), true), second(flat.slice_of_flat(2, {2}), true);
    const Variable y = ops::sum(first * first);
    overwrite(second.mutable_data());
    backward(y);
    CHECK(list(first.grad()) == List{2, 4});
    const Variable z = ops::sum(first * first);
    overwrite(flat);
    CHECK_THROWS_WITH(backward(z), Catch::Contains("mul"));
    const Variable whole = ops::sum(Variable(flat) * Variable(flat, true));
    overwrite(first.mutable_data());
    CHECK_THROWS_WITH(backward(whole), Catch::Contains("mul"));
  }
}
