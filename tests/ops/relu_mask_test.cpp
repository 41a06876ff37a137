// A ReLU's result is also the mask of its gradient, and its only consumer may apply it. Whoever does, once it must be.
#include "engine/autograd/backward.h"
#include "engine/autograd/grad_check.h"
#include "engine/autograd/node.h"
#include "engine/core/parallel.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

using Variables = std::vector<Variable>;
using Graph = std::function<Variable(const Variable& h, const Variables& in)>;

Tensor random_f64(const Shape& shape, std::uint64_t seed) {
  return tensor_of(random_array(shape, -1, 1, seed), DType::f64);
}

// Offers a mask like a fused ReLU, and notes whether a consumer took it.
class ProbeNode final : public Node {
 public:
  ProbeNode(const Tensor& mask, bool& masked) : mask_(mask), masked_(masked) {}
  const char* name() const noexcept override { return "probe"; }
  void backward(BackwardContext& ctx) override {
    masked_ = ctx.grad_output_is_masked();
    ctx.give(0, ctx.grad_output());
  }
  void release() noexcept override {}
  Tensor relu_mask(int) const override { return mask_; }

 private:
  Tensor mask_;
  bool& masked_;
};

// Whether the graph on a probe's result applied the probe's mask, and the gradient that the probe got.
bool applies_mask(const Shape& shape, const Graph& graph, const Variables& in = {}) {
  Variable x(random_f64(shape, 1), true);
  bool masked = false;
  const Variable h =
      make_result(ops::relu(x.data()).data(), std::make_shared<ProbeNode>(ops::relu(x.data()).data(), masked), {&x});
  const Variable y = graph(h, in);
  backward(y, {}, {.gradient = Tensor::full(y.shape(), 1.0, DType::f64)});
  // A consumer that took the mask has zeroed exactly the masked elements; one that did not has not.
  const std::vector<double> value = list(x), gradient = list(x.grad());
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (masked && value[i] <= 0) CHECK(gradient[i] == 0);
    if (!masked || value[i] > 0) CHECK(gradient[i] != 0);
  }
  return masked;
}

}  // namespace

TEST_CASE("a consumer applies the mask when it is the only one and knows masks") {
  const Shape images{1, 4, 4, 2};
  const Variables in{random_f64({3, 3, 3, 2}, 2), random_f64({5, 2}, 3), random_f64({4, 3, 3, 2}, 4)};
  const Graph conv = [](const Variable& h, const Variables& w) { return ops::conv2d(h, w[0]); };
  const Graph other_conv = [](const Variable& h, const Variables& w) { return ops::conv2d(h, w[2]); };
  const Graph linear = [](const Variable& h, const Variables& w) { return ops::linear(h, w[1]); };
  const Graph pool = [](const Variable& h, const Variables&) { return ops::avg_pool2d(h); };
  CHECK(applies_mask(images, conv, in));
  CHECK(applies_mask(images, linear, in));
  CHECK(applies_mask(images, pool));
  CHECK(applies_mask({6, 2}, linear, in));
  const Graph norm = [](const Variable& h, const Variables&) {
    const Tensor scale = Tensor::full({2}, 1.5, DType::f64), shift = Tensor::full({2}, 0.5, DType::f64);
    // Weighted, since the gradient of its plain sum is 0.
    return ops::batch_norm(h, scale, shift, {}) * ops::exp(h.data());
  };
  CHECK(applies_mask(images, norm));

  CHECK_FALSE(applies_mask(images, [](const Variable& h, const Variables&) { return h * 2.0; }));
  CHECK_FALSE(
      applies_mask(images, [](const Variable& h, const Variables&) { return ops::adaptive_avg_pool2d(h, 2, 2); }));
  CHECK_FALSE(applies_mask(images, [](const Variable& h, const Variables&) { return ops::flatten(h); }));
  CHECK_FALSE(applies_mask(
      images, [&](const Variable& h, const Variables& w) { return ops::sum(conv(h, w)) + ops::sum(other_conv(h, w)); },
      in));
  CHECK_FALSE(
      applies_mask(images, [&](const Variable& h, const Variables&) { return ops::sum(pool(h, {})) + ops::sum(h); }));
  CHECK_FALSE(applies_mask(images, [](const Variable& h, const Variables&) { return h; }));
  // As a weight it is no data: its gradient is written by another primitive.
  CHECK_FALSE(applies_mask({5, 2}, [](const Variable& h, const Variables&) {
    return ops::linear(Tensor::full({3, 2}, 1.0, DType::f64), h);
  }));
}

TEST_CASE("the gradient before a ReLU is right whoever applies the mask") {
  const ThreadLimit one_thread(1);  // thousands of tiny calls: threads would only wait for each other
  struct Row {
    const char* name;
    Graph graph;
  };
  const Row rows[] = {
      {"conv", [](const Variable& h, const Variables& in) { return ops::conv2d(h, in[0]); }},
      {"fused conv", [](const Variable& h, const Variables& in) { return ops::conv2d_relu(h, in[0]); }},
      {"conv, then pooling",
       [](const Variable& h, const Variables& in) { return ops::avg_pool2d(ops::conv2d_relu(h, in[0])); }},
      {"linear on pixels", [](const Variable& h, const Variables& in) { return ops::linear(h, in[1]); }},
      {"fused linear, twice",
       [](const Variable& h, const Variables& in) { return ops::linear(ops::linear_relu(h, in[1]), in[2]); }},
      {"batch norm",
       [](const Variable& h, const Variables&) {
         const Tensor scale = Tensor::full({2}, 1.5, DType::f64), shift = Tensor::full({2}, 0.5, DType::f64);
         return ops::batch_norm_relu(h, scale, shift, {});
       }},
      {"average", [](const Variable& h, const Variables&) { return ops::avg_pool2d(h); }},
      {"overlapping average",
       [](const Variable& h, const Variables&) {
         return ops::avg_pool2d(h, {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1});
       }},
      {"maximum", [](const Variable& h, const Variables&) { return ops::max_pool2d(h); }},
      {"ReLU again", [](const Variable& h, const Variables&) { return ops::relu(h); }},
      {"itself", [](const Variable& h, const Variables&) { return h; }},
      {"two that know masks",
       [](const Variable& h, const Variables& in) {
         return ops::sum(ops::conv2d(h, in[0])) + ops::sum(ops::linear(h, in[1]) * 2.0);
       }},
      {"one that knows and one that does not",
       [](const Variable& h, const Variables& in) { return ops::sum(ops::conv2d(h, in[0])) + ops::sum(ops::exp(h)); }},
      {"twice in one op", [](const Variable& h, const Variables&) { return h * h; }},
      {"data and weight of one op",
       [](const Variable& h, const Variables&) {
         return ops::linear(ops::reshape(h, {16, 4}), ops::reshape(h, {16, 4}));
       }},
      {"images and kernels of one op", [](const Variable& h, const Variables&) { return ops::conv2d(h, h); }},
      {"the other half of a fork is not in the loss",
       [](const Variable& h, const Variables& in) {
         const Variable aside = ops::exp(h);
         return ops::conv2d(h, in[0]);
       }},
      {"a residual",
       [](const Variable& h, const Variables& in) {
         return ops::relu(ops::conv2d(h, in[3], {}, {.padding_h = 1, .padding_w = 1}) + h);
       }},
  };
  const std::vector<Tensor> constants{random_f64({3, 3, 3, 2}, 2), random_f64({5, 2}, 3), random_f64({3, 5}, 4),
                                      random_f64({2, 3, 3, 2}, 5)};
  const std::function<Variable(const Variables&)> producers[] = {
      [](const Variables& x) { return ops::relu(x[0]); },
      [](const Variables& x) { return ops::conv2d_relu(x[0], x[1], x[2]); },
      [](const Variables& x) {
        return ops::linear_relu(x[0], ops::reshape(x[1], {2, 2}), x[2]);
      },
      [](const Variables& x) {
        return ops::relu_max_pool2d(
            ops::concat({ops::concat({x[0], x[0] * -0.5}, 1), ops::concat({x[0], x[0]}, 1)}, 2));
      },
  };
  for (const Row& row : rows) {
    for (const auto& producer : producers) {
      for (const bool weights_too : {false, true}) {
        std::vector<Tensor> moving{random_f64({2, 4, 4, 2}, 11), random_f64({2, 1, 1, 2}, 12), random_f64({2}, 13)};
        if (weights_too) moving.insert(moving.end(), constants.begin(), constants.end());
        const GradCheckResult result = grad_check(
            [&](const Variables& leaves) {
              Variables in;
              for (std::size_t i = 0; i < constants.size(); ++i) {
                in.push_back(weights_too ? leaves[3 + i] : Variable(constants[i]));
              }
              return row.graph(producer(leaves), in);
            },
            moving);
        INFO(row.name << ", producer " << (&producer - producers) << ": " << result.worst);
        CHECK(result.max_rel_error < 1e-7);
      }
    }
  }
}

TEST_CASE("masks are right again when a retained graph runs twice") {
  Variable x(random_f64({1, 4, 4, 1}, 1), true);
  const Variable w(random_f64({2, 3, 3, 1}, 2));
  const Variable loss = ops::sum(ops::conv2d(ops::relu(x), w));
  backward(loss, {}, {.retain_graph = true});
  std::vector<double> once = list(x.grad());
  backward(loss);
  for (double& g : once) g *= 2;
  CHECK(list(x.grad()) == once);
}
