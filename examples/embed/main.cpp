// Heddle inside a program of your own: an own op with its gradient, an own loss, an own training loop. It learns which
// of three spiral arms a point is on. Build files for an installed Heddle: Makefile (pkg-config) and CMakeLists.txt.
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include <heddle/autograd/backward.h>
#include <heddle/autograd/node.h>
#include <heddle/nn/linear.h>
#include <heddle/nn/sequential.h>
#include <heddle/ops/ops.h>
#include <heddle/optim/sgd.h>

namespace nn = heddle::nn;
namespace ops = heddle::ops;
using heddle::Tensor;
using heddle::Variable;

namespace {

// y = x + sin(x)^2, dx = dy (1 + sin(2 x)). Source: Ziyin et al., "Neural networks fail to learn periodic functions and
// how to fix it", NeurIPS 2020.
class SnakeNode final : public heddle::Node {
 public:
  explicit SnakeNode(const Tensor& x) : x_(x) {}
  const char* name() const noexcept override { return "snake"; }
  void backward(heddle::BackwardContext& context) override {
    const Tensor& dy = context.grad_output();
    heddle::GradTarget dx = context.target(0);
    const bool add = dx.mode == heddle::WriteMode::add;
    const float* x = x_.get(name()).host_data<float>();
    const float* from = dy.host_data<float>();
    float* to = dx.tensor.mutable_host_data<float>();
    for (std::int64_t i = 0; i < dy.numel(); ++i) {
      const float gradient = from[i] * (1.0f + std::sin(2.0f * x[i]));
      to[i] = add ? to[i] + gradient : gradient;
    }
  }
  void release() noexcept override { x_.reset(); }

 private:
  heddle::SavedTensor x_;
};

Variable snake(const Variable& x) {
  Tensor y = Tensor::empty_like(x.data());
  const float* from = x.data().host_data<float>();
  float* to = y.mutable_host_data<float>();
  for (std::int64_t i = 0; i < y.numel(); ++i) to[i] = from[i] + std::sin(from[i]) * std::sin(from[i]);
  if (!heddle::needs_graph({&x})) return y;
  return heddle::make_result(y, std::make_shared<SnakeNode>(x.data()), {&x});
}

class Snake final : public nn::Module {
 public:
  using nn::Module::forward;
  Variable forward(const Variable& x) override { return snake(x); }
  std::string description() const override { return "Snake()"; }
};

// Mean of -(1 - p)^2 log p, with p the probability of the label: points that are right already count less.
// Source: Lin et al., "Focal loss for dense object detection", ICCV 2017.
Variable focal_loss(const Variable& logits, const Tensor& labels) {
  const Variable log_p = ops::gather(ops::log_softmax(logits), 1, labels.reshape({labels.numel(), 1}));
  const Variable miss = 1.0 - ops::exp(log_p);
  return -ops::mean(miss * miss * log_p);
}

// n points of three arms: inputs (n,2), labels (n).
void make_spirals(std::int64_t n, heddle::Philox& random, Tensor& inputs, Tensor& labels) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < n; ++i) {
    const double radius = 0.1 + 0.9 * random.uniform();
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(i % 3) / 3.0 + 4.0 * radius;
    x.push_back(static_cast<float>(radius * std::cos(angle) + 0.02 * random.normal()));
    x.push_back(static_cast<float>(radius * std::sin(angle) + 0.02 * random.normal()));
    y.push_back(i % 3);
  }
  inputs = Tensor::from_values(x, {n, 2});
  labels = Tensor::from_values(y, {n});
}

}  // namespace

int main() try {
  heddle::Philox random(1);
  nn::Sequential model({std::make_shared<nn::Linear>(2, 32), std::make_shared<Snake>(),
                        std::make_shared<nn::Linear>(32, 32), std::make_shared<Snake>(),
                        std::make_shared<nn::Linear>(32, 3)});
  model.reset_parameters(random);
  nn::ParameterBuffer parameters(model);
  heddle::optim::Sgd optimizer(parameters, 0.2, {.momentum = 0.9, .nesterov = true});

  Tensor x, labels, test_x, test_labels;
  make_spirals(600, random, x, labels);
  make_spirals(600, random, test_x, test_labels);
  for (int step = 1; step <= 300; ++step) {
    optimizer.zero_grad();
    const Variable loss = focal_loss(model.forward(x), labels);
    heddle::backward(loss);
    optimizer.step();
    if (step % 50 == 0) std::printf("step %3d  loss %.4f\n", step, loss.data().item());
  }

  const heddle::NoGradGuard no_grad;
  const Tensor right = ops::eq(ops::argmax(model.forward(test_x), 1), test_labels).data();
  std::printf("accuracy %.3f on points it has not seen\n", ops::mean(ops::to(right, heddle::DType::f32)).data().item());
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
