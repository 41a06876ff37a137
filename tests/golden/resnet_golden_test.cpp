// Two training steps of the ResNets against PyTorch's in float64: see make_golden_resnet.py, which made the files.
#include <algorithm>
#include <set>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "models/resnet.h"
#include "tests/golden/golden_support.h"
#include "tests/support/devices.h"

using namespace heddle;
using namespace heddle::test;

namespace {

constexpr double kTolerance = 1e-4;
constexpr std::size_t kProjections = 8;
constexpr std::size_t kSamples = 64;

std::shared_ptr<nn::Module> make_model(const GoldenFile& golden) {
  const Tensor images = golden.images("first/images");
  const std::string& kind = golden.text("model");
  const bool tv = kind == "resnet18-tv";
  return models::make_resnet({.in_channels = images.dim(3), .height = images.dim(1), .width = images.dim(2)},
                             {.small_stem = kind == "resnet18-cifar",
                              .base_channels = std::stoll(golden.text("width")),
                              .conv_bias = !tv,
                              .norm_shortcut = tv});
}

// Names of the modules that have running statistics.
std::set<std::string> norms_of(const nn::Module& model) {
  static constexpr std::string_view kEnd = ".running_mean";
  std::set<std::string> names;
  for (const auto& b : model.named_buffers()) {
    if (b.name.ends_with(kEnd)) names.insert(b.name.substr(0, b.name.size() - kEnd.size()));
  }
  return names;
}

// The formula of set_weights() in make_golden_resnet.py, in PyTorch's layouts.
void set_weights(nn::Module& model) {
  const std::set<std::string> norms = norms_of(model);
  checkpoint::StateDict state;
  std::uint32_t stream = 0;
  double fan_in = 1;
  for (const auto& p : model.named_parameters()) {
    const Shape shape = checkpoint::torch_shape(p.variable.shape(), p.layout);
    const bool of_norm = norms.contains(p.name.substr(0, p.name.rfind('.')));
    const bool is_scale = p.name.ends_with(".weight");
    if (shape.rank() > 1) fan_in = static_cast<double>(shape.numel() / shape[0]);
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double u = hash_unit(stream, i);
      const double in_norm = is_scale ? 0.75 + 0.5 * u : 0.0;
      values[i] = static_cast<float>(of_norm ? in_norm : (2 * u - 1) * std::sqrt(3 / fan_in));
    }
    state.emplace_back(p.name, Tensor::from_values(values, shape));
    ++stream;
  }
  for (const auto& b : model.named_buffers()) state.emplace_back(b.name, b.variable.data());
  checkpoint::load_state_dict(model, state);
}

void set_shifts(nn::Module& model, const std::vector<double>& shifts) {
  const std::set<std::string> norms = norms_of(model);
  std::size_t at = 0;
  for (nn::NamedVariable& p : model.named_parameters()) {
    if (!p.name.ends_with(".bias") || !norms.contains(p.name.substr(0, p.name.rfind('.')))) continue;
    const auto n = static_cast<std::size_t>(p.variable.numel());
    REQUIRE(at + n <= shifts.size());
    const std::vector<float> values(shifts.begin() + static_cast<std::ptrdiff_t>(at),
                                    shifts.begin() + static_cast<std::ptrdiff_t>(at + n));
    p.variable.mutable_data().copy_from(Tensor::from_values(values, p.variable.shape()));
    at += n;
  }
  REQUIRE(at == shifts.size());
}

// Relative distance of a tensor from what the file holds of it.
double distance(const GoldenFile& golden, const std::string& name, const std::vector<double>& ours) {
  if (golden.has(name + "/whole")) {
    const std::vector<double> whole = golden.floats(name + "/whole");
    return norm_of(difference(ours, whole)) / norm_of(whole);
  }
  const std::vector<double> summary = golden.floats(name + "/summary"), samples = golden.floats(name + "/samples");
  REQUIRE(summary.size() == 1 + kProjections);
  double squares = 0;
  for (std::size_t j = 0; j < kProjections; ++j) {
    squares += std::pow(projection(ours, static_cast<std::uint32_t>(j)) - summary[1 + j], 2);
  }
  std::vector<double> own_samples;
  for (std::size_t i = 0; i < ours.size(); i += ours.size() / kSamples) own_samples.push_back(ours[i]);
  const double by_projections = std::sqrt(squares / kProjections) / summary[0];
  const double by_norm = std::abs(norm_of(ours) - summary[0]) / summary[0];
  // What is sampled may be zero by chance: taps that only ever meet padding.
  const double by_samples = norm_of(difference(own_samples, samples)) / std::max(norm_of(samples), 1e-3 * summary[0]);
  return std::max({by_projections, by_norm, by_samples});
}

void check_case(const std::string& name, Device device) {
  INFO(name << " on " << device);
  const GoldenFile golden(name);
  const auto model = make_model(golden);
  // Draws the statistics' initial values as well.
  Philox random(1);
  model->reset_parameters(random);
  set_weights(*model);
  model->to(device);
  const std::set<std::string> norms = norms_of(*model);
  CHECK(norms.size() == (golden.text("model") == "resnet18-tv" ? 20 : 17));
  nn::ParameterBuffer buffer(*model);
  optim::Sgd sgd(buffer, golden.option("learning_rate"),
                 SgdParams{.momentum = static_cast<float>(golden.option("momentum")),
                           .weight_decay = static_cast<float>(golden.option("weight_decay")),
                           .nesterov = true});
  for (const std::string step : {"first", "second"}) {
    INFO(step << " step");
    set_shifts(*model, golden.floats(step + "/shifts"));
    const Tensor images = golden.images(step + "/images").to(device), labels = golden.labels(step + "/labels");
    const auto batch = static_cast<double>(labels.numel());
    sgd.zero_grad();
    const Variable logits = model->forward(images);
    const Variable loss =
        ops::cross_entropy(logits, labels.to(device), {.reduction = ops::Reduction::sum, .stats = buffer.tail()});
    CHECK(loss.data().item() / batch == Approx(golden.floats(step + "/loss")[0]).epsilon(kTolerance));
    const std::vector<double> expected = golden.floats(step + "/logits");
    CHECK(norm_of(difference(torch_values(logits.data(), {}), expected)) <= kTolerance * norm_of(expected));
    backward(loss);
    buffer.finish_gradients();
    for (nn::NamedVariable& p : model->named_parameters()) {
      std::vector<double> ours = torch_values(p.variable.grad(), p.layout);
      for (double& g : ours) g /= batch;
      INFO("gradient of " << p.name);
      // A bias in front of a batch norm changes nothing: "conv1.bias" and "bn1".
      std::string next = p.name.substr(0, p.name.rfind('.'));
      const std::size_t conv = next.rfind("conv");
      if (conv != std::string::npos) next.replace(conv, 4, "bn");
      if (p.name.ends_with(".bias") && conv != std::string::npos && norms.contains(next)) {
        CHECK(ours == std::vector<double>(ours.size(), 0.0));
      } else {
        CHECK(distance(golden, step + "/grad/" + p.name, ours) <= kTolerance);
      }
    }
    sgd.step({.divide_by_weight_sum = true});
    for (const nn::NamedVariable& b : model->named_buffers()) {
      INFO(b.name);
      CHECK(distance(golden, step + "/" + b.name, torch_values(b.variable.data(), b.layout)) <= kTolerance);
    }
  }
  for (const nn::NamedVariable& p : model->named_parameters()) {
    INFO("weight " << p.name);
    CHECK(distance(golden, "weights/" + p.name, torch_values(p.variable.data(), p.layout)) <= kTolerance);
  }
  model->train(false);
  const NoGradGuard guard;
  const Tensor logits = model->forward(golden.images("first/images").to(device)).data();
  const std::vector<double> expected = golden.floats("eval/logits");
  CHECK(norm_of(difference(torch_values(logits, {}), expected)) <= kTolerance * norm_of(expected));
}

}  // namespace

TEST_CASE("two training steps of resnet18 equal PyTorch's") { check_case("resnet18", Device::cpu()); }

TEST_CASE("two training steps of resnet18-cifar equal PyTorch's") { check_case("resnet18-cifar", Device::cpu()); }

TEST_CASE("two training steps of resnet18-tv equal PyTorch's") { check_case("resnet18-tv", Device::cpu()); }

TEST_CASE("two training steps of narrow ResNets equal PyTorch's on every device") {
  for (const Device device : testing::test_devices()) {
    check_case("resnet18-narrow", device);
    check_case("resnet18-cifar-narrow", device);
  }
}
