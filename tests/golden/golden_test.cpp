// Two training steps of each LeNet against PyTorch's in float64: see make_golden.py, which made the files.
#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/checkpoint/state_dict.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "models/model_list.h"
#include "tests/support/catch.h"

using namespace heddle;

namespace {

constexpr std::int64_t kFullNumel = 4096;
constexpr std::size_t kProjections = 16;
constexpr std::int64_t kSamples = 1024;

// Number i of a stream, as in make_golden.py.
std::uint32_t hash_u32(std::uint32_t stream, std::uint64_t i) {
  auto x = static_cast<std::uint32_t>(i + std::uint64_t{0x9E3779B9} * (stream + 1));
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

std::vector<double> difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  std::vector<double> d(a.size());
  for (std::size_t i = 0; i < d.size(); ++i) d[i] = a[i] - b[i];
  return d;
}

std::vector<double> to_double(const std::vector<float>& x) { return {x.begin(), x.end()}; }

class Golden {
 public:
  explicit Golden(const std::string& model)
      : golden_(SafetensorsFile::open(path(model, "golden"))), weights_path(path(model, "weights")) {}

  std::vector<double> floats(const std::string& name) const {
    const TensorEntry* entry = golden_.find(name);
    INFO(name);
    REQUIRE(entry != nullptr);
    std::vector<double> values(entry->numel());
    if (entry->type == SafetensorsType::f64) {
      golden_.read(*entry, values.data());
    } else {
      std::vector<float> f(values.size());
      golden_.read_f32(*entry, f.data());
      std::copy(f.begin(), f.end(), values.begin());
    }
    return values;
  }
  // Pixels / 255 (N,28,28,1), and labels (N).
  Tensor images() const {
    std::vector<std::uint8_t> pixels(golden_.find("images")->numel());
    golden_.read(*golden_.find("images"), pixels.data());
    std::vector<float> values;
    for (const std::uint8_t p : pixels) values.push_back(static_cast<float>(p) / 255.f);
    return Tensor::from_values(values, Shape(golden_.find("images")->shape));
  }
  Tensor labels() const {
    std::vector<std::int64_t> values(golden_.find("labels")->numel());
    golden_.read(*golden_.find("labels"), values.data());
    return Tensor::from_values(values, {static_cast<std::int64_t>(values.size())});
  }
  double option(const std::string& name) const { return std::stod(golden_.metadata().at(name)); }

 private:
  static std::string path(const std::string& model, const std::string& kind) {
    return std::string(HEDDLE_GOLDEN_DIR) + "/" + model + "-" + kind + ".safetensors";
  }
  SafetensorsFile golden_;

 public:
  std::string weights_path;
};

std::vector<double> torch_values(const Tensor& value, const nn::ParameterLayout& layout) {
  return to_double(checkpoint::to_torch_layout(value, layout).to_vector<float>());
}

// Close as weights, and close as changes from the initial weights, which are some hundred times smaller.
void check_close(const std::vector<double>& ours, const std::vector<double>& expected,
                 const std::vector<double>& initial) {
  const double error = norm_of(difference(ours, expected));
  CHECK(error <= 1e-5 * norm_of(expected));
  CHECK(error <= 1e-4 * norm_of(difference(expected, initial)));
}

// A weight after `step` ("first", "second") against the whole, or samples, norm and projections of a large one.
void check_weight(const Golden& golden, const std::string& step, const nn::NamedVariable& p,
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
    // On random signs a difference d projects to about +-|d|.
    double projection = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const bool negative = (hash_u32(static_cast<std::uint32_t>(3000 + j), i) & 1) != 0;
      projection += negative ? -ours[i] : ours[i];
    }
    CHECK(std::abs(projection - summary[1 + j]) <= 1e-5 * summary[0]);
  }
}

void check_gradients(const Golden& golden, nn::Module& model, double scale) {
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
  const Golden golden(name);
  const auto model = models::make_model(name, {});
  checkpoint::load_weights(golden.weights_path, *model);
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
    checkpoint::load_weights(Golden(name).weights_path, *model);
    std::uint32_t stream = 0;
    double fan_in = 1;
    for (const auto& [parameter, value] : checkpoint::state_dict(*model)) {
      INFO(name << " " << parameter);
      const std::vector<float> values = value.to_vector<float>();
      if (value.rank() > 1) fan_in = static_cast<double>(value.numel() / value.dim(0));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double u = static_cast<double>(hash_u32(stream, i) >> 8) * 0x1p-24;
        wrong += values[i] == static_cast<float>((2 * u - 1) * (1 / std::sqrt(fan_in))) ? 0 : 1;
      }
      CHECK(wrong == 0);
      ++stream;
    }
  }
}

TEST_CASE("two training steps of lenet equal PyTorch's") { check_model("lenet"); }

TEST_CASE("two training steps of lenet-d2l equal PyTorch's") { check_model("lenet-d2l"); }
