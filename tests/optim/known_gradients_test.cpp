// Gradients that are known without having been written: zeros under a batch norm, and the bias on the other side of a
// sum, whose gradient is the batch norm's shift's. Steps must not depend on what their memory holds.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/nn/batch_norm.h"
#include "engine/nn/conv2d.h"
#include "engine/optim/adam.h"
#include "engine/optim/sgd.h"
#include "engine/step/step_graph.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/relative_distance.h"

using namespace heddle;

namespace {

// relu(norm(conv(x)) + shortcut(x)), summed with weights that tell elements apart.
class Block final : public nn::Module {
 public:
  Block() {
    conv =
        register_module("conv", std::make_shared<nn::Conv2d>(2, 4, nn::Conv2dOptions{.kernel_size = 3, .padding = 1}));
    norm = register_module("norm", std::make_shared<nn::BatchNorm2d>(4));
    shortcut = register_module("shortcut", std::make_shared<nn::Conv2d>(2, 4, nn::Conv2dOptions{.kernel_size = 1}));
    Philox random(5);
    reset_parameters(random);
  }
  Variable forward(const Variable& x) override {
    return norm->forward_with_add_relu(conv->forward(x), shortcut->forward(x));
  }
  using Module::forward;
  std::string description() const override { return "Block"; }
  std::shared_ptr<nn::Conv2d> conv, shortcut;
  std::shared_ptr<nn::BatchNorm2d> norm;
};

struct Fixture {
  explicit Fixture(Device on) : device(on) {
    model.to(device);
    buffer.emplace(model);
    std::vector<float> values(2 * 4 * 4 * 2), factors(2 * 4 * 4 * 4);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = std::cos(3 * static_cast<float>(i)) + 0.2f;
    x = Tensor::from_values<float>(values, {2, 4, 4, 2}).to(device);
    factor = Tensor::from_values<float>(factors, {2, 4, 4, 4}).to(device);
  }
  void pass() { backward(ops::sum(ops::mul(model.forward(x), factor))); }
  Variable parameter(const std::string& name) {
    for (const nn::NamedVariable& p : model.named_parameters()) {
      if (p.name == name) return p.variable;
    }
    throw Error("no parameter " + name);
  }
  std::vector<float> gradient(const std::string& name) { return parameter(name).grad().to_vector<float>(); }
  // Of the flat buffer, once it is whole.
  std::vector<float> flat(const std::string& name) {
    for (const nn::ParameterSegment& s : buffer->segments()) {
      if (s.name == name) return buffer->gradients().narrow(s.begin, s.numel).to_vector<float>();
    }
    throw Error("no parameter " + name);
  }
  void spoil() { buffer->gradients().copy_from(Tensor::full(buffer->gradients().shape(), 7, DType::f32, device)); }

  Device device;
  Block model;
  std::optional<nn::ParameterBuffer> buffer;
  Tensor x, factor;
};

const std::vector<float> kZeros(4, 0.0f);

std::vector<float> times(std::vector<float> values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

// What the block's shift and the shortcut's bias get, by the sum over all that ReLU lets through.
std::vector<float> sums_by_hand(Fixture& f) {
  const NoGradGuard no_grad;
  const std::vector<float> y = f.model.forward(f.x).data().to_vector<float>(), g = f.factor.to_vector<float>();
  std::vector<float> sums(4, 0.0f);
  for (std::size_t i = 0; i < y.size(); ++i) sums[i % 4] += y[i] > 0 ? g[i] : 0.0f;
  return sums;
}

}  // namespace

TEST_CASE("the flat gradients are whole after finish_gradients() and after an update, whatever was there before") {
  for (const Device device : testing::test_devices()) {
    for (const int variant : {0, 1, 2, 3}) {
      CAPTURE(device.to_string(), variant);
      Fixture f(device);
      optim::Sgd sgd(*f.buffer, 0.1, SgdParams{.momentum = 0.9, .weight_decay = 0.1});
      optim::AdamW adam(*f.buffer, 0.01, AdamParams{.weight_decay = 0.1});
      const std::vector<float> wanted = sums_by_hand(f);
      f.spoil();
      f.buffer->zero_grad();
      f.pass();
      if (variant == 0) f.buffer->finish_gradients();
      if (variant == 1) sgd.step();
      if (variant == 2) sgd.step({.max_gradient_norm = 0.1});
      if (variant == 3) adam.step();
      CHECK(f.flat("conv.bias") == kZeros);
      CHECK(f.flat("shortcut.bias") == f.flat("norm.bias"));
      CHECK(testing::relative_distance(f.flat("norm.bias"), wanted) < 1e-5);
      CHECK(f.gradient("shortcut.bias") == f.flat("norm.bias"));
    }
  }
}

TEST_CASE("known gradients add up over backward passes, and each leaf can be asked, changed and zeroed alone") {
  for (const Device device : testing::test_devices()) {
    CAPTURE(device.to_string());
    Fixture f(device);
    f.spoil();
    f.buffer->zero_grad();
    f.pass();
    const std::vector<float> once = f.gradient("norm.bias");
    CHECK(f.gradient("shortcut.bias") == once);
    f.buffer->zero_grad();
    f.pass();
    f.pass();
    f.buffer->finish_gradients();
    CHECK(testing::relative_distance(f.flat("norm.bias"), times(once, 2)) < 1e-5);
    CHECK(testing::relative_distance(f.flat("shortcut.bias"), times(once, 2)) < 1e-5);
    CHECK(f.flat("conv.bias") == kZeros);

    // What is done to the one is not done to the other.
    f.buffer->zero_grad();
    f.pass();
    f.parameter("norm.bias").grad().fill_zero();
    f.buffer->finish_gradients();
    CHECK(f.flat("norm.bias") == kZeros);
    CHECK(f.flat("shortcut.bias") == once);
    f.buffer->zero_grad();
    f.pass();
    f.parameter("norm.bias").zero_grad();
    f.buffer->finish_gradients();
    CHECK(f.flat("norm.bias") == kZeros);
    CHECK(f.flat("shortcut.bias") == once);
    f.buffer->zero_grad();
    f.pass();
    f.parameter("shortcut.bias").zero_grad();
    f.buffer->finish_gradients();
    CHECK(f.flat("norm.bias") == once);
    CHECK(f.flat("shortcut.bias") == kZeros);
  }
}

TEST_CASE("parts of the buffer are whole in any order, as an exchange between ranks asks for them") {
  for (const Device device : testing::test_devices()) {
    CAPTURE(device.to_string());
    Fixture f(device);
    const std::size_t count = f.buffer->segments().size();
    std::vector<std::vector<float>> found;
    for (const bool backwards : {true, false}) {
      f.spoil();
      f.buffer->zero_grad();
      f.pass();
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t s = backwards ? count - 1 - i : i;
        f.buffer->finish_gradients(s, s + 1);
        // What the sum over two ranks does there.
        const nn::ParameterSegment& segment = f.buffer->segments()[s];
        Tensor part = f.buffer->gradients().narrow(segment.begin, segment.numel);
        part.copy_from(Tensor::from_values<float>(times(part.to_vector<float>(), 2), {segment.numel}).to(device));
      }
      CHECK(f.flat("conv.bias") == kZeros);
      CHECK(f.flat("shortcut.bias") == f.flat("norm.bias"));
      found.push_back(f.flat("norm.bias"));
    }
    CHECK(found[0] == found[1]);
  }
}

TEST_CASE("a gradient that was handed over before the pass is through is no source for another one") {
  for (const Device device : testing::test_devices()) {
    CAPTURE(device.to_string());
    Fixture f(device);
    const std::vector<nn::ParameterSegment>& segments = f.buffer->segments();
    f.spoil();
    f.buffer->zero_grad();
    // The norm's shift is ready, and sent, before the shortcut's bias is computed.
    backward(ops::sum(ops::mul(f.model.forward(f.x), f.factor)), [&](Variable& leaf) {
      for (std::size_t s = 0; s < segments.size(); ++s) {
        if (!(segments[s].variable == leaf)) continue;
        f.buffer->finish_gradients(s, s + 1);
        Tensor part = f.buffer->gradients().narrow(segments[s].begin, segments[s].numel);
        part.copy_from(Tensor::from_values<float>(times(part.to_vector<float>(), 2), {segments[s].numel}).to(device));
      }
    });
    CHECK(testing::relative_distance(f.flat("norm.bias"), times(sums_by_hand(f), 2)) < 1e-5);
    CHECK(testing::relative_distance(f.flat("shortcut.bias"), f.flat("norm.bias")) < 1e-5);
  }
}

TEST_CASE(
    "a parameter that is frozen behind its backward pass has no gradient in the buffer, in no later pass either") {
  for (const Device device : testing::test_devices()) {
    CAPTURE(device.to_string());
    Fixture f(device);
    const std::string name = GENERATE("shortcut.bias", "norm.bias", "conv.weight");
    CAPTURE(name);
    const auto is_zero = [&] {
      const std::vector<float> values = f.flat(name);
      return std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
    };
    f.spoil();
    f.buffer->zero_grad();
    f.pass();
    f.parameter(name).set_requires_grad(false);
    f.buffer->finish_gradients();
    CHECK(is_zero());
    f.pass();
    f.buffer->finish_gradients();
    CHECK(is_zero());
    // Thawed and frozen again between two passes.
    f.parameter(name).set_requires_grad(true);
    f.pass();
    f.parameter(name).set_requires_grad(false);
    f.buffer->finish_gradients();
    CHECK(is_zero());
    if (name != "norm.bias") CHECK(f.flat("norm.bias") != kZeros);
  }
}

TEST_CASE("parameters that an optimiser leaves alone have whole gradients after its update") {
  for (const Device device : testing::test_devices()) {
    CAPTURE(device.to_string());
    Fixture f(device);
    const std::vector<optim::Sgd::Group> groups{
        {optim::select_parameters(*f.buffer, [](const nn::ParameterSegment& s) { return s.name == "conv.weight"; }),
         {}}};
    optim::Sgd sgd(*f.buffer, 0.1, groups);
    const std::vector<float> bias = f.parameter("conv.bias").data().to_vector<float>();
    f.spoil();
    f.buffer->zero_grad();
    f.pass();
    sgd.step();
    CHECK(f.flat("conv.bias") == kZeros);
    CHECK(f.flat("shortcut.bias") == f.flat("norm.bias"));
    CHECK(f.parameter("conv.bias").data().to_vector<float>() == bias);
  }
}

TEST_CASE("recorded steps train alike whatever lies in the gradients' memory between them") {
  for (const Device device : testing::test_devices()) {
    for (const double clip : {0.0, 0.1}) {
      CAPTURE(device.to_string(), clip);
      // Batch norms with the batch's statistics and, in between, with fixed ones: then a bias under one has a gradient.
      const auto train = [&](bool recorded, bool spoils) {
        Fixture f(device);
        optim::Sgd sgd(*f.buffer, 0.05, SgdParams{.momentum = 0.9, .weight_decay = 0.01});
        step::StepGraph graph(device, {.enabled = recorded});
        for (const bool fixed : {false, false, true, false, true, true, false, true, false}) {
          if (spoils) f.spoil();
          graph.run({.input = {fixed ? 1 : 0}}, [&] {
            f.model.train(!fixed);
            sgd.zero_grad();
            f.pass();
            sgd.step({.max_gradient_norm = clip});
          });
        }
        const std::vector<float> bias = f.parameter("conv.bias").data().to_vector<float>();
        CHECK(bias != Fixture(device).parameter("conv.bias").data().to_vector<float>());
        return f.buffer->data().to_vector<float>();
      };
      const std::vector<float> plain = train(false, false);
      CHECK(train(false, true) == plain);
      CHECK(train(true, false) == plain);
      CHECK(train(true, true) == plain);
    }
  }
}
