// The ResNets: sizes, names, the ops they run, and what they refuse.
#include "models/resnet.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/device/caching_allocator.h"
#include "engine/nn/parameter_buffer.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::models;

namespace {

std::shared_ptr<nn::Module> drawn(std::shared_ptr<nn::Module> model) {
  Philox random(3);
  model->reset_parameters(random);
  return model;
}

std::shared_ptr<nn::Module> drawn(const char* name, const ModelOptions& options = {}) {
  return drawn(make_model(name, options));
}

Tensor noise(const Shape& shape) { return ops::rand(shape); }

std::vector<std::string> parameter_names(const nn::Module& model) {
  std::vector<std::string> names;
  for (const auto& p : model.named_parameters()) names.push_back(p.name);
  return names;
}

// How often each op is in the graph that leads to y.
std::map<std::string, int> op_counts(const Variable& y) {
  std::map<std::string, int> counts;
  std::set<const Node*> seen;
  std::vector<const Node*> left{y.grad_node().get()};
  while (!left.empty()) {
    const Node* const node = left.back();
    left.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    ++counts[node->name()];
    for (const Edge& edge : node->inputs()) left.push_back(edge.node.get());
  }
  return counts;
}

}  // namespace

TEST_CASE("the ResNets have the parameters of their definitions, in as many tensors") {
  const auto check = [](const char* name, const ModelOptions& options, std::int64_t parameters, std::size_t tensors,
                        std::size_t buffers) {
    INFO(name);
    const auto model = make_model(name, options);
    CHECK(model->num_parameters() == parameters);
    CHECK(model->named_parameters().size() == tensors);
    CHECK(model->named_buffers().size() == buffers);
  };
  check("resnet18", {}, 11178378, 76, 34);
  check("resnet18-cifar", {}, 11175818, 76, 34);
  // torchvision's own count, for the thousand classes of ImageNet.
  check("resnet18-tv", {.in_channels = 3, .num_classes = 1000}, 11689512, 62, 40);
}

TEST_CASE("the parameters of the ResNets have torchvision's names, in forward order") {
  const auto names = parameter_names(*make_model("resnet18", {}));
  const std::vector<std::string> first{"conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight"};
  CHECK(std::equal(first.begin(), first.end(), names.begin()));
  const std::vector<std::string> last{"layer4.1.bn2.weight", "layer4.1.bn2.bias", "fc.weight", "fc.bias"};
  CHECK(std::equal(last.rbegin(), last.rend(), names.rbegin()));
  const auto has = [](const std::vector<std::string>& all, const char* name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  CHECK(has(names, "layer2.0.downsample.0.weight"));
  CHECK(has(names, "layer2.0.downsample.0.bias"));
  CHECK_FALSE(has(names, "layer2.0.downsample.1.weight"));
  CHECK_FALSE(has(names, "layer1.0.downsample.0.weight"));
  CHECK_FALSE(has(names, "layer2.1.downsample.0.weight"));

  const auto tv = parameter_names(*make_model("resnet18-tv", {.in_channels = 3}));
  CHECK(has(tv, "layer4.0.downsample.0.weight"));
  CHECK(has(tv, "layer4.0.downsample.1.bias"));
  CHECK_FALSE(has(tv, "layer4.0.downsample.0.bias"));
  CHECK_FALSE(has(tv, "conv1.bias"));
}

TEST_CASE("the ResNets run a batch norm with its sum and its ReLU as one op") {
  using Counts = std::map<std::string, int>;
  const Tensor images = noise({2, 28, 28, 1});
  CHECK(op_counts(drawn("resnet18")->forward(images)) == Counts{{"conv2d", 20},
                                                                {"batch_norm", 1},
                                                                {"relu_max_pool2d", 1},
                                                                {"batch_norm_relu", 8},
                                                                {"batch_norm_add_relu", 8},
                                                                {"adaptive_avg_pool2d", 1},
                                                                {"reshape", 1},
                                                                {"linear", 1}});
  CHECK(op_counts(drawn(make_resnet({}, {.small_stem = true, .base_channels = 4}))->forward(images)) ==
        Counts{{"conv2d", 20},
               {"batch_norm_relu", 9},
               {"batch_norm_add_relu", 8},
               {"adaptive_avg_pool2d", 1},
               {"reshape", 1},
               {"linear", 1}});
}

TEST_CASE("a ResNet gives as many outputs as there are classes, for images of any size from its stem's window on") {
  const auto outputs = [](const ModelOptions& options, const ResNetOptions& resnet) {
    const auto model = drawn(make_resnet(options, resnet));
    const NoGradGuard guard;
    return model->forward(noise({3, options.height, options.width, options.in_channels})).shape();
  };
  const ResNetOptions narrow{.base_channels = 4}, small{.small_stem = true, .base_channels = 4};
  for (const std::int64_t size : {7, 8, 28, 33, 96}) {
    CHECK(outputs({.height = size, .width = size + 5}, narrow) == Shape{3, 10});
  }
  for (const std::int64_t size : {3, 4, 28, 31}) {
    CHECK(outputs({.in_channels = 2, .height = size, .width = size, .num_classes = 6}, small) == Shape{3, 6});
  }
  CHECK_THROWS_WITH(make_model("resnet18", {.height = 6, .width = 28}),
                    Catch::Contains("6x28") && Catch::Contains("7x7"));
  CHECK_THROWS_WITH(make_model("resnet18-cifar", {.height = 28, .width = 2}),
                    Catch::Contains("28x2") && Catch::Contains("3x3"));
}

TEST_CASE("torchvision's ResNet takes three channels only, and says so") {
  CHECK_THROWS_WITH(make_model("resnet18-tv", {}),
                    Catch::Contains("the images have 1 channels") && Catch::Contains("takes 3"));
  CHECK(find_model("resnet18-tv").in_channels == 3);
  CHECK(find_model("resnet18").in_channels == 0);
}

// docs/models.md: the maps of the last stage are of one pixel, where all taps but the middle one meet padding alone.
TEST_CASE("at 28 pixels 62 % of resnet18's weights see no gradient, at 96 pixels all do") {
  // Weights of taps whose gradient is zero for all pairs of channels.
  const auto weights_of_dead_taps = [](std::int64_t size) {
    const auto model = drawn("resnet18", {.height = size, .width = size});
    nn::ParameterBuffer buffer(*model);
    buffer.zero_grad();
    const Tensor labels = Tensor::from_values(std::vector<std::int64_t>{0, 3, 5, 9}, {4});
    backward(ops::cross_entropy(model->forward(noise({4, size, size, 1})), labels));
    std::int64_t count = 0;
    for (nn::NamedVariable& p : model->named_parameters()) {
      if (p.variable.shape().rank() != 4) continue;
      const std::vector<float> gradient = p.variable.grad().to_vector<float>();
      const std::int64_t taps = p.variable.dim(1) * p.variable.dim(2), inputs = p.variable.dim(3);
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        bool dead = true;
        for (std::int64_t o = 0; o < p.variable.dim(0); ++o) {
          const auto begin = gradient.begin() + (o * taps + tap) * inputs;
          dead = dead && std::all_of(begin, begin + inputs, [](float g) { return g == 0.0f; });
        }
        if (dead) count += p.variable.dim(0) * inputs;
      }
    }
    return count;
  };
  // Three convolutions 512 to 512 use one tap of nine, the one of 256 to 512 with stride 2 uses four.
  const std::int64_t at_28 = 3 * 512 * 512 * 8 + 256 * 512 * 5;
  CHECK(weights_of_dead_taps(28) == at_28);
  CHECK(static_cast<double>(at_28) / 11178378 == Approx(0.62).margin(0.005));
  CHECK(weights_of_dead_taps(96) == 0);
}

TEST_CASE("a ResNet learns, the same bits each time, and from the second step of a shape on asks for no memory") {
  struct Result {
    std::vector<double> losses;
    std::vector<float> weights;
    std::vector<std::uint64_t> device_allocations;
  };
  const auto train = [] {
    const auto model = drawn(make_resnet({}, {.base_channels = 8}));
    nn::ParameterBuffer buffer(*model);
    optim::Sgd sgd(buffer, 0.05, SgdParams{.momentum = 0.9});
    Result result;
    for (int step = 0; step < 16; ++step) {
      // The smaller batch is the end of an epoch.
      const std::int64_t n = step % 4 == 3 ? 5 : 16;
      const Tensor images = noise({n, 28, 28, 1});
      std::vector<std::int64_t> labels;
      for (std::int64_t i = 0; i < n; ++i) labels.push_back(i % 10);
      sgd.zero_grad();
      const Variable loss = ops::cross_entropy(model->forward(images), Tensor::from_values(labels, {n}),
                                               {.reduction = ops::Reduction::sum, .stats = buffer.tail()});
      result.losses.push_back(loss.data().item() / static_cast<double>(n));
      backward(loss);
      sgd.step({.divide_by_weight_sum = true});
      result.device_allocations.push_back(allocator_for(Device::cpu()).stats().device_allocations);
    }
    result.weights = buffer.data().to_vector<float>();
    return result;
  };
  const Result first = train(), second = train();
  CHECK(first.losses == second.losses);
  CHECK(first.weights == second.weights);
  CHECK(first.losses.back() < 0.5 * first.losses.front());
  for (std::size_t step = 5; step < 16; ++step) {
    INFO("step " << step);
    CHECK(first.device_allocations[step] == first.device_allocations[4]);
  }
}

TEST_CASE("one image of one pixel at the end has no batch statistics: training refuses it, evaluation takes it") {
  const auto model = drawn(make_resnet({}, {.base_channels = 4}));
  const auto values = [&] {
    std::vector<std::vector<float>> all;
    for (const auto& b : model->named_buffers()) all.push_back(b.variable.data().to_vector<float>());
    return all;
  };
  CHECK_THROWS_AS(model->forward(noise({1, 28, 28, 1})), InvalidArgument);
  for (const auto& buffer : values()) {
    CHECK(std::all_of(buffer.begin(), buffer.end(), [](float v) { return std::isfinite(v); }));
  }
  model->train(false);
  CHECK(model->forward(noise({1, 28, 28, 1})).shape() == Shape{1, 10});
}
