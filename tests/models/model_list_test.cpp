// The models by name: sizes, shapes, parameter names and messages.
#include "models/model_list.h"

#include "engine/autograd/node.h"
#include "engine/backend/kernel_choice.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::models;

namespace {

std::vector<std::string> names_of(const nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& p : module.named_parameters()) names.push_back(p.name);
  return names;
}

Shape output_of(nn::Module& model, const Shape& input) {
  Philox random(1);
  model.reset_parameters(random);
  const NoGradGuard guard;
  return model.forward(Tensor::zeros(input)).shape();
}

// Names of the ops that led to y, the last first, along first inputs.
std::vector<std::string> ops_of(const Variable& y) {
  std::vector<std::string> names;
  for (const Node* node = y.grad_node().get(); node != nullptr; node = node->inputs()[0].node.get()) {
    names.emplace_back(node->name());
  }
  return names;
}

}  // namespace

TEST_CASE("both LeNets run convolution, ReLU and pooling as one op where the kernels for it are the choice") {
  using Names = std::vector<std::string>;
  const auto ops = [](const char* name, std::int64_t batch) {
    const auto model = make_model(name, {});
    Philox random(1);
    model->reset_parameters(random);
    return ops_of(model->forward(Tensor::zeros({batch, 28, 28, 1})));
  };
  CHECK(ops("lenet", 64) ==
        Names{"linear", "linear_relu", "linear_relu", "reshape", "conv2d_relu_max_pool2d", "conv2d_relu_max_pool2d"});
  CHECK(ops("lenet-d2l", 64) ==
        Names{"linear", "linear_relu", "reshape", "conv2d_relu_avg_pool2d", "conv2d_relu_avg_pool2d"});
  const KernelChoiceGuard vendor(KernelChoice::vendor);
  CHECK(ops("lenet", 64) == Names{"linear", "linear_relu", "linear_relu", "reshape", "relu_max_pool2d", "conv2d",
                                  "relu_max_pool2d", "conv2d"});
  CHECK(ops("lenet-d2l", 64) ==
        Names{"linear", "linear_relu", "reshape", "avg_pool2d", "conv2d_relu", "avg_pool2d", "conv2d_relu"});
}

TEST_CASE("lenet has 44,426 parameters under PyTorch's names") {
  const auto model = make_model("lenet", {});
  CHECK(model->num_parameters() == 44426);
  CHECK(names_of(*model) == std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias",
                                                     "9.weight", "9.bias", "11.weight", "11.bias"});
  CHECK(output_of(*model, {5, 28, 28, 1}) == Shape{5, 10});
}

TEST_CASE("lenet-d2l has 129,068 parameters under PyTorch's names") {
  const auto model = make_model("lenet-d2l", {});
  CHECK(model->num_parameters() == 129068);
  CHECK(names_of(*model) == std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias",
                                                     "9.weight", "9.bias"});
  CHECK(output_of(*model, {5, 28, 28, 1}) == Shape{5, 10});
}

TEST_CASE("models adapt to images and classes, down to the smallest that leave a pixel") {
  for (const auto& info : model_list()) {
    INFO(info.name);
    const auto model = make_model(info.name, {.in_channels = 3, .height = 16, .width = 40, .num_classes = 7});
    model->train(false);
    CHECK(output_of(*model, {2, 16, 40, 3}) == Shape{2, 7});
  }
  CHECK_NOTHROW(make_model("lenet", {.height = 16, .width = 16}));
  CHECK_THROWS_WITH(make_model("lenet", {.height = 15, .width = 28}),
                    Catch::Contains("15x28") && Catch::Contains("16x16"));
  CHECK_NOTHROW(make_model("lenet-d2l", {.height = 14, .width = 14}));
  CHECK_THROWS_WITH(make_model("lenet-d2l", {.height = 14, .width = 13}), Catch::Contains("14x14"));
  CHECK_THROWS_AS(make_model("lenet", {.num_classes = 0}), InvalidArgument);
}

TEST_CASE("an unknown model is answered with the nearest known one") {
  CHECK_THROWS_WITH(make_model("lennet", {}), Catch::Contains("'lennet'") && Catch::Contains("did you mean 'lenet'"));
}
