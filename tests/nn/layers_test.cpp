// Layers: shapes, parameters, fusion, modes and messages. The mathematics of the ops is tested in tests/ops.
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/nn/activation.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/dropout.h"
#include "engine/nn/flatten.h"
#include "engine/nn/linear.h"
#include "engine/nn/loss.h"
#include "engine/nn/pooling.h"
#include "engine/nn/sequential.h"
#include "engine/ops/ops.h"
#include "tests/support/catch.h"

using namespace heddle;

namespace {

using Layers = std::vector<std::shared_ptr<nn::Module>>;

template <class M, class... Args>
std::shared_ptr<M> make(Args&&... args) {
  return std::make_shared<M>(std::forward<Args>(args)...);
}

Tensor random_tensor(const Shape& shape, std::uint64_t seed = 1) {
  Philox random(seed);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& v : values) v = 2 * random.uniform() - 1;
  return Tensor::from_values(values, shape);
}

std::vector<std::string> names_of(const nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& p : module.named_parameters()) names.push_back(p.name);
  return names;
}

}  // namespace

TEST_CASE("Conv2d keeps its options in shapes, parameters and description") {
  nn::Conv2d conv(4, 6, {.kernel_size = {3, 5}, .stride = 2, .padding = {1, 0}, .groups = 2});
  Philox random(1);
  conv.reset_parameters(random);
  CHECK(names_of(conv) == std::vector<std::string>{"weight", "bias"});
  CHECK(conv.weight().shape() == Shape{6, 3, 5, 2});
  CHECK(conv.num_parameters() == 6 * 3 * 5 * 2 + 6);
  CHECK(conv.forward(random_tensor({2, 7, 9, 4})).shape() == Shape{2, 4, 3, 6});
  CHECK(conv.description() == "Conv2d(4, 6, kernel_size=(3, 5), stride=(2, 2), padding=(1, 0), groups=2)");
  CHECK(names_of(nn::Conv2d(1, 1, {.bias = false})) == std::vector<std::string>{"weight"});
}

TEST_CASE("layers that cannot be are refused when they are made, naming the option") {
  CHECK_THROWS_WITH(nn::Conv2d(3, 4, {.groups = 2}), Catch::Contains("2 groups") && Catch::Contains("3 input"));
  CHECK_THROWS_AS(nn::Conv2d(0, 4, {}), InvalidArgument);
  CHECK_THROWS_WITH(nn::Conv2d(1, 4, {.kernel_size = 3, .padding = -1}), Catch::Contains("(-1, -1)"));
  CHECK_THROWS_AS(nn::Linear(4, 0), InvalidArgument);
  CHECK_THROWS_WITH(nn::MaxPool2d({.kernel_size = 2, .padding = 2}), Catch::Contains("half"));
  CHECK_THROWS_AS(nn::AdaptiveAvgPool2d(0), InvalidArgument);
  CHECK_THROWS_AS(nn::Dropout(1.0), InvalidArgument);
  CHECK_THROWS_AS(nn::Sequential(Layers{}), InvalidArgument);
  CHECK_THROWS_AS(nn::Sequential(Layers{nullptr}), InvalidArgument);
}

TEST_CASE("Sequential names its layers by position and fuses without changing the results") {
  const auto conv1 = make<nn::Conv2d>(1, 4, nn::Conv2dOptions{.kernel_size = 3});
  const auto conv2 = make<nn::Conv2d>(4, 5, nn::Conv2dOptions{.kernel_size = 3});
  const auto linear = make<nn::Linear>(20, 7);
  const nn::Pool2dOptions pool{.kernel_size = 2};
  nn::Sequential model({conv1, make<nn::ReLU>(), make<nn::MaxPool2d>(pool), conv2, make<nn::ReLU>(),
                        make<nn::AvgPool2d>(pool), make<nn::Flatten>(), linear, make<nn::ReLU>()},
                       1);
  Philox random(3);
  model.reset_parameters(random);
  CHECK(names_of(model) == std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias"});

  const Tensor x = random_tensor({3, 14, 14, 1});
  const Variable fused = model.forward(x);
  backward(ops::sum(fused));
  std::vector<std::vector<float>> fused_gradients;
  for (auto& p : model.named_parameters()) {
    fused_gradients.push_back(p.variable.grad().to_vector<float>());
    p.variable.zero_grad();
  }

  // The same layers one by one: their own forward is not changed by being in a Sequential.
  Variable y = ops::max_pool2d(ops::relu(conv1->forward(x)));
  y = ops::avg_pool2d(ops::relu(conv2->forward(y)));
  y = ops::relu(linear->forward(ops::flatten(y)));
  CHECK(fused.shape() == Shape{3, 7});
  const auto a = fused.data().to_vector<float>(), b = y.data().to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(1e-6));
  backward(ops::sum(y));
  const auto parameters = model.named_parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    Variable v = parameters[p].variable;
    const auto gradient = v.grad().to_vector<float>();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      CHECK(fused_gradients[p][i] == Approx(gradient[i]).margin(1e-4));
    }
  }
}

TEST_CASE("Sequential runs a convolution, its ReLU and a pooling by 2x2 as one op, and others as before") {
  const auto last_op = [](const Layers& layers) {
    nn::Sequential model(layers);
    Philox random(3);
    model.reset_parameters(random);
    return std::string(model.forward(random_tensor({16, 9, 9, 2})).grad_node()->name());
  };
  const auto conv = make<nn::Conv2d>(2, 3, nn::Conv2dOptions{.kernel_size = 3});
  const auto relu = make<nn::ReLU>();
  const auto max = [](const nn::Pool2dOptions& options) { return make<nn::MaxPool2d>(options); };
  const auto avg = [](const nn::Pool2dOptions& options) { return make<nn::AvgPool2d>(options); };
  CHECK(last_op({conv, relu, max({})}) == "conv2d_relu_max_pool2d");
  CHECK(last_op({conv, relu, avg({})}) == "conv2d_relu_avg_pool2d");
  CHECK(last_op({conv, make<nn::Dropout>(0.5), relu, max({})}) == "relu_max_pool2d");
  CHECK(last_op({conv, relu, max({.kernel_size = 3})}) == "relu_max_pool2d");
  CHECK(last_op({conv, relu, max({.kernel_size = 2, .stride = 1})}) == "relu_max_pool2d");
  CHECK(last_op({conv, relu, max({.kernel_size = 2, .padding = 1})}) == "relu_max_pool2d");
  CHECK(last_op({conv, relu, avg({.kernel_size = 2, .ceil_mode = true})}) == "avg_pool2d");
  CHECK(last_op({conv, max({})}) == "max_pool2d");
  CHECK(last_op({conv, relu}) == "conv2d_relu");
  // An error names both layers, of which either may be the one that does not fit.
  nn::Sequential model({conv, relu, max({})});
  CHECK_THROWS_WITH(model.forward(random_tensor({16, 3, 9, 2})), Catch::Contains("layer 0 Conv2d(2, 3") &&
                                                                     Catch::Contains("with layer 2 MaxPool2d(") &&
                                                                     Catch::Contains("kernel height 2"));
}

TEST_CASE("a layer that is used twice has one set of parameters, and its gradient is the sum") {
  const auto shared = make<nn::Linear>(3, 3, false);
  nn::Sequential model({shared, shared});
  CHECK(names_of(model) == std::vector<std::string>{"0.weight"});
  // W = 2 I, x = ones: y = W W x; d(sum y)/dW = 1 (W x)^T + (W^T 1) x^T = 2 + 2 everywhere.
  Variable weight = shared->weight();
  weight.mutable_data().copy_from(Tensor::from_values<float>({2, 0, 0, 0, 2, 0, 0, 0, 2}, {3, 3}));
  backward(ops::sum(model.forward(Tensor::full({1, 3}, 1.0))));
  CHECK(weight.grad().to_vector<float>() == std::vector<float>(9, 4.f));
}

TEST_CASE("a Linear after a Flatten learns the channels of the map, also across nested models") {
  using Kind = nn::ParameterLayout::Kind;
  const auto features = make<nn::Sequential>(
      Layers{make<nn::Conv2d>(3, 8, nn::Conv2dOptions{.kernel_size = 3}), make<nn::Tanh>(), make<nn::Dropout>(0.1)});
  const auto head =
      make<nn::Sequential>(Layers{make<nn::Flatten>(), make<nn::Linear>(32, 10), make<nn::Linear>(10, 2)});
  const nn::Sequential model({features, head}, 3);
  const auto parameters = model.named_parameters();
  CHECK(parameters[0].layout.kind == Kind::conv_weight);
  CHECK(parameters[1].layout.kind == Kind::plain);
  CHECK(parameters[2].name == "1.1.weight");
  CHECK(parameters[2].layout == nn::ParameterLayout{Kind::flattened_columns, 8});
  CHECK(parameters[4].layout.kind == Kind::plain);
}

TEST_CASE(
    "neighbours that do not fit are found when the model is built, bad inputs when it runs, with the layer's place") {
  const auto conv = [](std::int64_t in, std::int64_t out) {
    return make<nn::Conv2d>(in, out, nn::Conv2dOptions{.kernel_size = 3});
  };
  CHECK_THROWS_WITH(nn::Sequential({conv(1, 4), conv(5, 6)}),
                    Catch::Contains("layer 1") && Catch::Contains("4 channels"));
  CHECK_THROWS_WITH(nn::Sequential({conv(1, 4), make<nn::Linear>(16, 2)}), Catch::Contains("Flatten"));
  CHECK_THROWS_WITH(nn::Sequential({conv(1, 4), make<nn::Flatten>(), make<nn::Linear>(15, 2)}), Catch::Contains("15"));
  CHECK_THROWS_AS(nn::Sequential({conv(1, 4)}, 3), InvalidArgument);
  nn::Sequential model({conv(1, 4), make<nn::ReLU>(), make<nn::Flatten>(), make<nn::Linear>(16, 2)});
  Philox random(1);
  model.reset_parameters(random);
  CHECK_THROWS_WITH(model.forward(random_tensor({2, 9, 9, 3})),
                    Catch::Contains("layer 0 Conv2d(1, 4") && Catch::Contains("(2,9,9,3)"));
  CHECK_THROWS_WITH(model.forward(random_tensor({2, 9, 9, 1})),
                    Catch::Contains("layer 3 Linear(in_features=16") && Catch::Contains("(2,196)"));
}

TEST_CASE("dropout drops about p of the elements, keeps the mean, moves on at each call, and rests in evaluation") {
  nn::Dropout dropout(0.25, 42);
  const Tensor ones = Tensor::full({40000}, 1.0);
  const auto first = dropout.forward(ones).data().to_vector<float>();
  int dropped = 0;
  for (const float v : first) {
    dropped += v == 0.f ? 1 : 0;
    CHECK((v == 0.f || v == Approx(1 / 0.75)));
  }
  // Deviation sqrt(40000 0.25 0.75) = 87.
  CHECK(std::abs(dropped - 10000) < 5 * 87);
  CHECK(dropout.forward(ones).data().to_vector<float>() != first);

  const auto streams = dropout.named_random_streams();
  REQUIRE(streams.size() == 1);
  CHECK(streams[0].second->offset == 80000);
  *streams[0].second = {.seed = 42, .offset = 0};
  CHECK(dropout.forward(ones).data().to_vector<float>() == first);
  dropout.train(false);
  CHECK(dropout.forward(ones).data().same_memory(ones));
}

TEST_CASE("two dropouts of one model draw different seeds from the run's") {
  nn::Sequential model({make<nn::Dropout>(0.5), make<nn::Dropout>(0.5)});
  Philox random(1);
  model.reset_parameters(random);
  const auto streams = model.named_random_streams();
  REQUIRE(streams.size() == 2);
  CHECK(streams[0].first == "0");
  CHECK(streams[1].first == "1");
  CHECK(streams[0].second->seed != streams[1].second->seed);
}

TEST_CASE("losses are modules with two inputs") {
  nn::CrossEntropyLoss loss;
  const std::vector<Variable> inputs{Tensor::from_values<float>({2, 0, 0}, {1, 3}),
                                     Tensor::from_values<std::int64_t>({0}, {1})};
  nn::Module& module = loss;
  CHECK(module.forward(inputs).data().item() == Approx(0.2395448));
  CHECK_THROWS_WITH(module.forward(inputs[0]), Catch::Contains("CrossEntropyLoss") && Catch::Contains("1 inputs"));
  nn::MSELoss mse;
  CHECK(mse.forward(Tensor::full({2}, 3.0), Tensor::full({2}, 1.0)).data().item() == 4.0);
}

TEST_CASE("a model prints its layers, nested ones indented") {
  const nn::Sequential model({make<nn::Sequential>(Layers{make<nn::ReLU>()}), make<nn::Flatten>()});
  CHECK(model.description() ==
        "Sequential(\n  (0): Sequential(\n    (0): ReLU()\n  )\n  (1): Flatten(start_dim=1, end_dim=-1)\n)");
}
