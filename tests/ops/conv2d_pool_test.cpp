// conv2d_relu_pool2d against the two ops that it stands for. On small whole numbers sums are exact, so that values,
// ties and gradients must be the same to the bit; NaN must come out where it does there.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/backend/kernel_choice.h"
#include "engine/core/parallel.h"
#include "engine/device/caching_allocator.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

using List = std::vector<double>;

struct Geometry {
  std::int64_t batch, h, w, in_c, out_c, kernel_h, kernel_w;
  Conv2dParams params = {};
};

// With lanes full and not, odd sizes of the convolution's output, and windows that leave input uncovered.
const Geometry kGeometries[] = {
    {16, 12, 12, 1, 6, 5, 5},
    {33, 9, 8, 6, 16, 4, 3},
    {1, 5, 7, 2, 3, 2, 2},
    {20, 7, 9, 3, 5, 3, 3, {.stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 1}},
    {5, 6, 11, 1, 4, 3, 2, {.stride_w = 3, .padding_h = 2}},
    {17, 4, 4, 17, 20, 1, 1},
};

Tensor whole_numbers(const Shape& shape, std::int64_t low, std::int64_t high, std::uint64_t seed) {
  return tensor_of(integer_array(shape, low, high, seed), DType::f32);
}

struct Operands {
  explicit Operands(const Geometry& g)
      : x(whole_numbers({g.batch, g.h, g.w, g.in_c}, -2, 2, 1), true),
        w(whole_numbers({g.out_c, g.kernel_h, g.kernel_w, g.in_c}, -2, 2, 2), true),
        bias(whole_numbers({g.out_c}, -3, 3, 3), true) {}
  Variable x, w, bias;
};

using Op = Variable (*)(const Variable&, const Variable&, const Variable&, const Conv2dParams&, PoolKind);

Variable fused(const Variable& x, const Variable& w, const Variable& bias, const Conv2dParams& params, PoolKind kind) {
  return ops::conv2d_relu_pool2d(x, w, bias, params, {kind, {}});
}

Variable two_ops(const Variable& x, const Variable& w, const Variable& bias, const Conv2dParams& params,
                 PoolKind kind) {
  if (kind == PoolKind::max) return ops::relu_max_pool2d(ops::conv2d(x, w, bias, params));
  return ops::avg_pool2d(ops::conv2d_relu(x, w, bias, params));
}

Tensor gradient_for(const Variable& y) { return whole_numbers(y.shape(), -3, 3, 9); }

// Result and gradients, one after the other.
List run(Op op, Operands in, const Geometry& g, PoolKind kind) {
  const Variable y = op(in.x, in.w, in.bias, g.params, kind);
  List all = list(y);
  backward(y, {}, {.gradient = gradient_for(y)});
  for (Variable* input : {&in.x, &in.w, &in.bias}) {
    for (const double v : list(input->grad())) all.push_back(v);
  }
  return all;
}

// Equal, NaN with NaN.
bool same(const List& a, const List& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !(a[i] != a[i] && b[i] != b[i])) return false;
  }
  return true;
}

std::int64_t count_nan(const List& values) {
  return std::count_if(values.begin(), values.end(), [](double v) { return v != v; });
}

bool is_fused(const Variable& y) { return std::strncmp(y.grad_node()->name(), "conv2d_relu_", 12) == 0; }

template <class Body>
void for_each_case(Body body) {
  for (const Geometry& g : kGeometries) {
    for (const PoolKind kind : {PoolKind::max, PoolKind::avg}) {
      INFO(g.batch << " images of " << g.h << "x" << g.w << "x" << g.in_c << ", " << g.out_c << " channels"
                   << (kind == PoolKind::max ? ", max" : ", avg"));
      body(g, kind);
    }
  }
}

}  // namespace

TEST_CASE("values, ties and gradients are those of convolution and pooling one after the other") {
  const KernelChoiceGuard own(KernelChoice::own);
  for_each_case([](const Geometry& g, PoolKind kind) {
    const Operands in(g);
    CHECK(is_fused(fused(in.x, in.w, in.bias, g.params, kind)));
    const List expected = run(two_ops, Operands(g), g, kind);
    for (const int threads : {1, 2, 3}) {
      const ThreadLimit limit(threads);
      CHECK(run(fused, Operands(g), g, kind) == expected);
    }
  });
}

TEST_CASE("NaN and infinity come through as they do with two ops") {
  const KernelChoiceGuard own(KernelChoice::own);
  for_each_case([](const Geometry& g, PoolKind kind) {
    for (const double value : {double{NAN}, HUGE_VAL, -HUGE_VAL}) {
      INFO(value);
      const auto poisoned = [&] {
        Operands in(g);
        float* const x = in.x.mutable_data().mutable_host_data<float>();
        // One pixel of one image, and, if there are more images, all of another.
        const std::int64_t image = g.h * g.w * g.in_c;
        x[image / 2] = static_cast<float>(value);
        if (g.batch > 2) std::fill_n(x + 2 * image, image, static_cast<float>(value));
        return in;
      };
      const List expected = run(two_ops, poisoned(), g, kind);
      CHECK(same(run(fused, poisoned(), g, kind), expected));
      if (value != value) CHECK(count_nan(expected) > 0);
    }
    // A bias that is NaN makes a whole channel so, and nothing of it may be lost in the maximum or the ReLU.
    Operands in(g);
    in.bias.mutable_data().mutable_host_data<float>()[1] = NAN;
    const Variable y = fused(in.x, in.w, in.bias, g.params, kind);
    CHECK(count_nan(list(y)) == y.numel() / g.out_c);
  });
}

TEST_CASE("each input's gradient is the same alone, and two uses add up") {
  const KernelChoiceGuard own(KernelChoice::own);
  for_each_case([](const Geometry& g, PoolKind kind) {
    Operands whole(g);
    const Variable y = fused(whole.x, whole.w, whole.bias, g.params, kind);
    backward(y, {}, {.retain_graph = true, .gradient = gradient_for(y)});
    const std::array expected{list(whole.x.grad()), list(whole.w.grad()), list(whole.bias.grad())};
    for (int wanted = 1; wanted < 7; ++wanted) {
      INFO("inputs " << wanted);
      Operands in(g);
      std::array inputs{&in.x, &in.w, &in.bias};
      for (int i = 0; i < 3; ++i) inputs[static_cast<std::size_t>(i)]->set_requires_grad((wanted >> i & 1) != 0);
      backward(fused(in.x, in.w, in.bias, g.params, kind), {}, {.gradient = gradient_for(y)});
      for (std::size_t i = 0; i < 3; ++i) {
        if (inputs[i]->requires_grad()) CHECK(list(inputs[i]->grad()) == expected[i]);
      }
    }
    // A retained graph runs again and adds.
    backward(y, {}, {.gradient = gradient_for(y)});
    std::size_t input = 0;
    for (Variable* variable : {&whole.x, &whole.w, &whole.bias}) {
      List twice = expected[input++];
      for (double& v : twice) v *= 2;
      CHECK(list(variable->grad()) == twice);
    }
  });
}

TEST_CASE("a weight that two layers share, with biases of their own, gets both gradients") {
  const KernelChoiceGuard own(KernelChoice::own);
  const Geometry g = kGeometries[0];
  std::vector<List> results;
  for (const Op op : {Op{fused}, Op{two_ops}}) {
    Operands in(g);
    Variable other(whole_numbers({g.out_c}, -3, 3, 4), true);
    const Variable y =
        ops::add(op(in.x, in.w, in.bias, g.params, PoolKind::max), op(in.x, in.w, other, g.params, PoolKind::avg));
    backward(y, {}, {.gradient = gradient_for(y)});
    results.push_back(list(in.x.grad()));
    for (Variable* v : {&in.w, &in.bias, &other}) {
      for (const double value : list(v->grad())) results.back().push_back(value);
    }
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("a ReLU in front leaves its mask to the fused op") {
  const KernelChoiceGuard own(KernelChoice::own);
  const Geometry g = kGeometries[1];
  std::vector<List> results;
  for (const Op op : {Op{fused}, Op{two_ops}}) {
    Operands in(g);
    const Variable y = op(ops::relu(in.x), in.w, in.bias, g.params, PoolKind::max);
    backward(y, {}, {.gradient = gradient_for(y)});
    results.push_back(list(in.x.grad()));
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("the fused form runs where the own kernels are the choice, and the two ops elsewhere") {
  const Geometry large = {32, 12, 12, 6, 16, 5, 5}, wide = {2, 14, 14, 64, 64, 3, 3};
  const auto node = [](const Geometry& g, const Pooling2d& pooling, DType dtype = DType::f32) {
    const Operands in(g);
    const auto as = [&](const Variable& v) { return Variable(ops::to(v.detach(), dtype).data(), true); };
    return std::string(ops::conv2d_relu_pool2d(as(in.x), as(in.w), as(in.bias), g.params, pooling).grad_node()->name());
  };
  const Pooling2d max{PoolKind::max, {}}, avg{PoolKind::avg, {}};
  CHECK(node(large, max) == "conv2d_relu_max_pool2d");
  CHECK(node(large, avg) == "conv2d_relu_avg_pool2d");
  CHECK(node(wide, max) == "relu_max_pool2d");  // oneDNN is faster
  CHECK(node(wide, avg) == "avg_pool2d");
  CHECK(node(large, max, DType::f64) == "relu_max_pool2d");
  CHECK(node(large, avg, DType::bf16) == "avg_pool2d");
  CHECK(node({32, 12, 12, 6, 16, 5, 5, {.dilation_h = 2}}, max) == "relu_max_pool2d");
  CHECK(node(large, {PoolKind::max, {.kernel_h = 3, .kernel_w = 3}}) == "relu_max_pool2d");
  CHECK(node(large, {PoolKind::avg, {.ceil_mode = true}}) == "avg_pool2d");
  const KernelChoiceGuard vendor(KernelChoice::vendor);
  CHECK(node(large, max) == "relu_max_pool2d");
  CHECK(node(large, avg) == "avg_pool2d");
}

TEST_CASE("without a gradient nothing is recorded, and the values are the same") {
  for_each_case([](const Geometry& g, PoolKind kind) {
    const Operands in(g);
    const List expected = list(fused(in.x, in.w, in.bias, g.params, kind));
    const NoGradGuard guard;
    const Variable y = fused(in.x, in.w, in.bias, g.params, kind);
    CHECK(y.grad_node() == nullptr);
    CHECK(list(y) == expected);
  });
}

TEST_CASE("what is kept for the way back is a byte a result, and nothing of the convolution's size") {
  const AllocatorStats before = allocator_for(Device::cpu()).stats();
  const auto in_use = [&] { return allocator_for(Device::cpu()).stats().in_use_nbytes - before.in_use_nbytes; };
  // The output of the convolution has 64 x 24 x 24 x 6 floats.
  const Operands in({64, 28, 28, 1, 6, 5, 5});
  const std::size_t operands = in_use();
  const Variable y = fused(in.x, in.w, in.bias, {}, PoolKind::max);
  const std::size_t result = static_cast<std::size_t>(y.numel()) * sizeof(float);
  const std::size_t kept = in_use() - operands;
  // Blocks are rounded up, and packed weights come and go.
  constexpr std::size_t kSlack = 64 * 1024;
  CHECK(kept + kSlack > result + result / 4);
  CHECK(kept < result + result / 4 + kSlack);
}

TEST_CASE("weights or images changed before the way back are an error that names the op") {
  Geometry g = kGeometries[0];
  for (const bool weights : {true, false}) {
    Operands in(g);
    Variable y = fused(in.x, in.w, in.bias, {}, PoolKind::avg);
    Variable& changed = weights ? in.w : in.x;
    changed.mutable_data().fill_zero();
    CHECK_THROWS_WITH(backward(y, {}, {.gradient = gradient_for(y)}),
                      Catch::Contains("conv2d_relu_avg_pool2d") && Catch::Contains(join_text(changed.shape())));
  }
  // The result itself is not needed.
  Operands in(g);
  Variable y = fused(in.x, in.w, in.bias, {}, PoolKind::max);
  const Tensor gradient = gradient_for(y);
  y.mutable_data().fill_zero();
  CHECK_NOTHROW(backward(y, {}, {.gradient = gradient}));
}

TEST_CASE("what does not fit is refused under the op's name, with both sides") {
  const Tensor x = Tensor::full({16, 6, 6, 2}, 1.0), w = Tensor::full({3, 3, 3, 2}, 1.0);
  const auto call = [](const Tensor& images, const Tensor& weights, const Tensor& bias, const Pooling2d& pooling) {
    ops::conv2d_relu_pool2d(images, weights, bias, {}, pooling);
  };
  CHECK_THROWS_WITH(call(x, Tensor::full({3, 3, 3, 1}, 1.0), {}, {}),
                    Catch::Contains("conv2d_relu_max_pool2d: x has 2 channels, w expects 1"));
  CHECK_THROWS_WITH(call(x, w, Tensor::full({4}, 1.0), {PoolKind::avg, {}}),
                    Catch::Contains("conv2d_relu_avg_pool2d: w (3,3,3,2) has 3 outputs, bias is (4)"));
  CHECK_THROWS_WITH(call(x, Tensor::full({3, 6, 5, 2}, 1.0), {}, {}),
                    Catch::Contains("conv2d_relu_max_pool2d, output of the convolution: kernel height 2") &&
                        Catch::Contains("(16,1,2,3)"));
  CHECK_THROWS_WITH(call(x, w, {}, {PoolKind::avg, {.stride_h = 0}}), Catch::Contains("stride is (0,2)"));
}
