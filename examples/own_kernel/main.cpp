// An op with CUDA kernels of your own, in a training step that a GPU records once and replays. The same program runs on
// the CPU, where the op has a form in plain C++ and a step is called each time. It learns which of three spiral arms a
// point is on. Build files for an installed Heddle: Makefile. Run it with "cpu" or "cuda"; without, it takes a GPU if
// there is one.
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <heddle/heddle.h>

#include "gate.h"

namespace nn = heddle::nn;
namespace ops = heddle::ops;
using heddle::Device;
using heddle::Tensor;
using heddle::Variable;

namespace {

// Calls launcher(stream) so that its kernels run in order with the engine's: on the stream that ops of this thread use,
// which is also the one that a StepGraph records. prepare_launch() makes the GPU current and names the launch in
// errors.
template <class Launcher>
void on_engine_stream(Device device, const char* name, const Launcher& launcher) {
  heddle::runtime_for(device).prepare_launch(name);
  const char* const problem = launcher(heddle::current_stream(device).handle);
  if (problem != nullptr) throw heddle::DeviceError(std::string(name) + ": " + problem);
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Keeps both inputs; writes each gradient where the engine says, storing or adding as it says.
class GateNode final : public heddle::Node {
 public:
  GateNode(const Tensor& a, const Tensor& b) : a_(a), b_(b) {}
  const char* name() const noexcept override { return "gate"; }
  void backward(heddle::BackwardContext& context) override {
    const Tensor dy = context.grad_output();
    GateGradients out;
    heddle::GradTarget da, db;
    if (context.needs_grad(0)) {
      da = context.target(0);
      out.da = da.tensor.mutable_device_data<float>();
      out.add_a = da.mode == heddle::WriteMode::add;
    }
    if (context.needs_grad(1)) {
      db = context.target(1);
      out.db = db.tensor.mutable_device_data<float>();
      out.add_b = db.mode == heddle::WriteMode::add;
    }
    const float* const a = a_.get(name()).device_data<float>();
    const float* const b = b_.get(name()).device_data<float>();
    const float* const from = dy.device_data<float>();
    if (!dy.device().is_cpu()) {
      return on_engine_stream(dy.device(), "gate_backward",
                              [&](void* stream) { return launch_gate_backward(a, b, from, out, dy.numel(), stream); });
    }
    for (std::int64_t i = 0; i < dy.numel(); ++i) {
      const float s = sigmoid(b[i]);
      if (out.da != nullptr) out.da[i] = (out.add_a ? out.da[i] : 0.0f) + from[i] * s;
      if (out.db != nullptr) out.db[i] = (out.add_b ? out.db[i] : 0.0f) + from[i] * a[i] * s * (1.0f - s);
    }
  }
  void release() noexcept override {
    a_.reset();
    b_.reset();
  }

 private:
  heddle::SavedTensor a_, b_;
};

// a * sigmoid(b). Source: Dauphin et al., "Language modeling with gated convolutional networks", ICML 2017.
Variable gate(const Variable& a, const Variable& b) {
  HEDDLE_CHECK(a.data().shape() == b.data().shape() && a.data().device() == b.data().device(), "gate: a is ",
               a.data().shape(), " on ", a.data().device(), ", b ", b.data().shape(), " on ", b.data().device());
  Tensor y = Tensor::empty_like(a.data());
  const float* const from_a = a.data().device_data<float>();
  const float* const from_b = b.data().device_data<float>();
  float* const to = y.mutable_device_data<float>();
  if (y.device().is_cpu()) {
    for (std::int64_t i = 0; i < y.numel(); ++i) to[i] = from_a[i] * sigmoid(from_b[i]);
  } else {
    on_engine_stream(y.device(), "gate",
                     [&](void* stream) { return launch_gate(from_a, from_b, to, y.numel(), stream); });
  }
  if (!heddle::needs_graph({&a, &b})) return y;
  return heddle::make_result(y, std::make_shared<GateNode>(a.data(), b.data()), {&a, &b});
}

// Two linear layers, one of which opens and shuts the other.
class GatedLinear final : public nn::Module {
 public:
  GatedLinear(std::int64_t in, std::int64_t out)
      : value_(register_module("value", std::make_shared<nn::Linear>(in, out))),
        opening_(register_module("opening", std::make_shared<nn::Linear>(in, out))) {}
  using nn::Module::forward;
  Variable forward(const Variable& x) override { return gate(value_->forward(x), opening_->forward(x)); }
  std::string description() const override { return "GatedLinear()"; }

 private:
  std::shared_ptr<nn::Linear> value_, opening_;
};

// n points of three arms: inputs (n,2), labels (n).
void make_spirals(std::int64_t n, heddle::Philox& random, Tensor& inputs, Tensor& labels) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < n; ++i) {
    const double radius = 0.1 + 0.9 * random.uniform();
    const double angle = 2.0943951 * static_cast<double>(i % 3) + 4.0 * radius;
    x.push_back(static_cast<float>(radius * std::cos(angle) + 0.02 * random.normal()));
    x.push_back(static_cast<float>(radius * std::sin(angle) + 0.02 * random.normal()));
    y.push_back(i % 3);
  }
  inputs = Tensor::from_values(x, {n, 2});
  labels = Tensor::from_values(y, {n});
}

Device choose_device(const std::string& wanted) {
  std::string why_not;
  if (wanted == "cpu" || (!heddle::load_cuda_plugin(&why_not) && wanted != "cuda")) return Device::cpu();
  if (!why_not.empty()) throw heddle::DeviceError("no GPU: " + why_not);
  return Device::cuda(0);
}

}  // namespace

int main(int argc, char** argv) try {
  const Device device = choose_device(argc > 1 ? argv[1] : "");
  std::printf("device %s: %s\n", device.to_string().c_str(), heddle::runtime_for(device).description().c_str());
  heddle::Philox random(1);
  Tensor x, labels;
  make_spirals(300, random, x, labels);
  x = x.to(device);
  labels = labels.to(device);
  nn::Sequential model({std::make_shared<GatedLinear>(2, 32), std::make_shared<GatedLinear>(32, 32),
                        std::make_shared<nn::Linear>(32, 3)});
  model.reset_parameters(random);
  model.to(device);
  nn::ParameterBuffer parameters(model);
  heddle::optim::Sgd optimizer(parameters, 0.2, heddle::SgdParams{.momentum = 0.9});

  heddle::step::StepGraph graph(device);
  const heddle::step::StepKey key{.input = x.shape()};
  Tensor loss;  // of the latest step
  for (int step = 1; step <= 200; ++step) {
    // On a GPU this runs twice: called, then recorded. From then on the recording is launched.
    graph.run(key, [&] {
      optimizer.zero_grad();
      const Variable result = ops::cross_entropy(model.forward(x), labels);
      heddle::backward(result);
      optimizer.step();
      loss = result.data();
    });
    // Reading a value waits for the device, so it is not done in every step.
    if (step % 40 == 0) std::printf("step %3d  loss %.4f\n", step, loss.item());
  }
  if (const auto size = graph.recorded_size(key)) {
    std::printf("recorded: %lld kernels a step\n", static_cast<long long>(size->kernels));
  }
  const heddle::NoGradGuard no_grad;
  const Tensor right = ops::eq(ops::argmax(model.forward(x), 1), labels).data();
  std::printf("accuracy %.3f\n", ops::mean(ops::to(right, heddle::DType::f32)).data().item());
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
