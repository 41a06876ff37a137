// Two training steps of each LeNet against PyTorch's in float64: see make_golden.py, which made the files.
#include <algorithm>
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "models/model_list.h"
#include "tests/golden/golden_support.h"

using namespace heddle;
using namespace heddle::test;

namespace {

constexpr std::int64_t kFullNumel = 4096;
constexpr std::size_t kProjections = 16;
constexpr std::int64_t kSamples = 1024;

std::string weights_path(const std::string& model) {
  return std::string(HEDDLE_GOLDEN_DIR) + "/" + model + "-weights.safetensors";
}

// Close as weights, and close as changes from the initial weights, which are some hundred times smaller.
void check_close(const std::vector<double>& ours, const std::vector<double>& expected,
                 const std::vector<double>& initial) {
  const double error = norm_of(difference(ours, expected));
  CHECK(error <= 1e-5 * norm_of(expected));
  CHECK(error <= 1e-4 * norm_of(difference(expected, initial)));
}

// A weight after `step` ("first", "second") against the whole, or samples, norm and projections of a large one.
void check_weight(const GoldenFile& golden, const std::string& step, const nn::NamedVariable& p,
                  const std::vector<double>& initial) {
  INFO(step << " " << p.name);
  const std::vector<double> ours = torch_values(p.variable.data(), p.layout);
  const std::string name = step + "/" + p.name;
  if (p.variable.numel() <= kFullNumel) {
    check_close(ours, golden.floats(name), initial);
    return;
  }
  const std::vector<double> summary = golden.floats(name + "/summary");
  REQUIRE(summary.size() == 1 + kProjections);
  CHECK(std::abs(norm_of(ours) - summary[0]) <= 1e-5 * summary[0]);
  const auto stride = static_cast<std::size_t>(p.variable.numel() / kSamples);
  std::vector<double> samples, initial_samples;
  for (std::size_t i = 0; i < ours.size(); i += stride) {
    samples.push_back(ours[i]);
    initial_samples.push_back(initial[i]);
  }
  check_close(samples, golden.floats(name + "/samples"), initial_samples);
  for (std::size_t j = 0; j < kProjections; ++j) {
    const double ours_j = projection(ours, static_cast<std::uint32_t>(j));
    CHECK(std::abs(ours_j - summary[1 + j]) <= 1e-5 * summary[0]);
  }
}

void check_gradients(const GoldenFile& golden, nn::Module& model, double scale) {
  double whole = 0;
  for (const auto& p : model.named_parameters()) whole += std::pow(norm_of(golden.floats("grad/" + p.name)), 2);
  whole = std::sqrt(whole);
  for (nn::NamedVariable& p : model.named_parameters()) {
    INFO("gradient of " << p.name);
    std::vector<double> ours = torch_values(p.variable.grad(), p.layout);
    for (double& g : ours) g *= scale;
    const std::vector<double> expected = golden.floats("grad/" + p.name);
    CHECK(norm_of(difference(ours, expected)) <= 1e-5 * std::max(norm_of(expected), 1e-6 * whole));
  }
}

void check_model(const std::string& name) {
  const GoldenFile golden(name);
  const auto model = models::make_model(name, {});
  checkpoint::load_weights(weights_path(name), *model);
  const Tensor images = golden.images(), labels = golden.labels();
  const double batch = static_cast<double>(labels.numel());
  const std::vector<double> losses = golden.floats("loss");
  std::vector<std::vector<double>> initial;
  for (const auto& p : model->named_parameters()) initial.push_back(torch_values(p.variable.data(), p.layout));

  {
    const NoGradGuard guard;
    const std::vector<double> logits = to_double(model->forward(images).data().to_vector<float>());
    const std::vector<double> expected = golden.floats("logits");
    CHECK(norm_of(difference(logits, expected)) <= 1e-5 * norm_of(expected));
  }
  {
    // The mean loss, on parameters that are not in a flat buffer yet.
    const Variable loss = ops::cross_entropy(model->forward(images), labels);
    CHECK(loss.data().item() == Approx(losses[0]).epsilon(1e-6));
    backward(loss);
    check_gradients(golden, *model, 1.0);
  }

  // The trainer's way: sums, the tail, and the update that divides.
  nn::ParameterBuffer buffer(*model);
  optim::Sgd sgd(
      buffer, golden.option("learning_rate"),
      SgdParams{
          .momentum = golden.option("momentum"), .weight_decay = golden.option("weight_decay"), .nesterov = true});
  for (const std::string step : {"first", "second"}) {
    sgd.zero_grad();
    const Variable loss =
        ops::cross_entropy(model->forward(images), labels, {.reduction = ops::Reduction::sum, .stats = buffer.tail()});
    backward(loss);
    const std::vector<float> tail = buffer.tail().read().to_vector<float>();
    const double mean =
        static_cast<double>(tail[tail_slot::kLossSum]) / static_cast<double>(tail[tail_slot::kWeightSum]);
    CHECK(mean == Approx(losses[step == "first" ? 0 : 1]).epsilon(1e-6));
    CHECK(tail[tail_slot::kSamples] == static_cast<float>(batch));
    if (step == "first") check_gradients(golden, *model, 1.0 / batch);
    sgd.step({.divide_by_weight_sum = true});
    const auto parameters = model->named_parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) check_weight(golden, step, parameters[i], initial[i]);
  }
}

}  // namespace

TEST_CASE("the golden weights are the formula's") {
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    const auto model = models::make_model(name, {});
    checkpoint::load_weights(weights_path(name), *model);
    std::uint32_t stream = 0;
    double fan_in = 1;
    for (const auto& [parameter, value] : checkpoint::state_dict(*model)) {
      INFO(name << " " << parameter);
      const std::vector<float> values = value.to_vector<float>();
      if (value.rank() > 1) fan_in = static_cast<double>(value.numel() / value.dim(0));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double u = hash_unit(stream, i);
        wrong += values[i] == static_cast<float>((2 * u - 1) * (1 / std::sqrt(fan_in))) ? 0 : 1;
      }
      CHECK(wrong == 0);
      ++stream;
    }
  }
}

TEST_CASE("two training steps of lenet equal PyTorch's") { check_model("lenet"); }

TEST_CASE("two training steps of lenet-d2l equal PyTorch's") { check_model("lenet-d2l"); }
