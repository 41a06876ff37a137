// Names, layouts and strictness of state dictionaries.
#include "engine/checkpoint/state_dict.h"

#include <numeric>

#include "engine/nn/activation.h"
#include "engine/nn/batch_norm.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/flatten.h"
#include "engine/nn/linear.h"
#include "engine/nn/sequential.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::checkpoint;
using test::TempFolder;

namespace {

// Conv 2->3 k2 on (3,4) images, flattened (2,3,3) = 18, Linear 18->4.
std::shared_ptr<nn::Sequential> make_model(std::uint64_t seed = 1) {
  auto model = std::make_shared<nn::Sequential>(
      std::vector<std::shared_ptr<nn::Module>>{std::make_shared<nn::Conv2d>(2, 3, nn::Conv2dOptions{.kernel_size = 2}),
                                               std::make_shared<nn::ReLU>(), std::make_shared<nn::Flatten>(),
                                               std::make_shared<nn::Linear>(18, 4)},
      2);
  Philox random(seed);
  model->reset_parameters(random);
  return model;
}

std::vector<float> counting(std::int64_t n) {
  std::vector<float> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), 0.f);
  return v;
}

std::vector<std::vector<float>> weights_of(const nn::Module& model) {
  std::vector<std::vector<float>> all;
  for (const auto& p : model.named_parameters()) all.push_back(p.variable.data().to_vector<float>());
  return all;
}

// The names of a file as tensors to write, all zero, with changes.
struct FileContent {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> tensors{
      {"0.weight", {3, 2, 2, 2}}, {"0.bias", {3}}, {"3.weight", {4, 18}}, {"3.bias", {4}}};
  SafetensorsType type = SafetensorsType::f32;

  void write(const std::string& path) const {
    const std::vector<double> zeros(1000, 0.0);
    std::vector<TensorToWrite> list;
    for (const auto& [name, shape] : tensors) list.push_back({name, type, shape, zeros.data()});
    write_safetensors(path, list);
  }
};

std::string error_of(const std::string& path, nn::Module& model) {
  try {
    load_weights(path, model);
  } catch (const IoError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("convolution weights go from OHWI to OIHW and back") {
  const nn::ParameterLayout conv{nn::ParameterLayout::Kind::conv_weight, 0};
  // (O,KH,KW,I) = (2,2,3,2): element [o][h][w][i] = ((o 2 + h) 3 + w) 2 + i.
  const Tensor x = Tensor::from_values(counting(24), {2, 2, 3, 2});
  const Tensor y = to_torch_layout(x, conv);
  CHECK(y.shape() == Shape{2, 2, 2, 3});
  const auto v = y.to_vector<float>();
  for (int o = 0; o < 2; ++o)
    for (int i = 0; i < 2; ++i)
      for (int h = 0; h < 2; ++h)
        for (int w = 0; w < 3; ++w)
          CHECK(v[static_cast<std::size_t>(((o * 2 + i) * 2 + h) * 3 + w)] ==
                static_cast<float>(((o * 2 + h) * 3 + w) * 2 + i));
  CHECK(from_torch_layout(y, conv).to_vector<float>() == counting(24));
  CHECK(from_torch_layout(y, conv).shape() == x.shape());
}

TEST_CASE("columns after a flatten go from (H,W,C) to (C,H,W) and back") {
  const nn::ParameterLayout flat{nn::ParameterLayout::Kind::flattened_columns, 3};
  const Tensor x = Tensor::from_values(counting(12), {1, 12});  // H*W = 4, C = 3
  CHECK(to_torch_layout(x, flat).to_vector<float>() == std::vector<float>{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11});
  CHECK(from_torch_layout(to_torch_layout(x, flat), flat).to_vector<float>() == counting(12));
  CHECK_THROWS_AS(to_torch_layout(Tensor::zeros({1, 10}), flat), InvalidArgument);
}

TEST_CASE("a state dictionary is a copy in PyTorch's names and layouts, and loads into another model") {
  const auto model = make_model(1), other = make_model(2);
  const StateDict state = state_dict(*model);
  REQUIRE(state.size() == 4);
  CHECK(state[0].first == "0.weight");
  CHECK(state[0].second.shape() == Shape{3, 2, 2, 2});
  const auto before = state[1].second.to_vector<float>();
  const auto weights = weights_of(*model);
  model->named_parameters()[1].variable.mutable_data().fill_zero();
  CHECK(state[1].second.to_vector<float>() == before);
  CHECK(weights_of(*other) != weights);
  load_state_dict(*other, state);
  CHECK(weights_of(*other) == weights);
}

TEST_CASE(
    "batch norm travels in PyTorch's names, with its running statistics, and its count of batches is passed over") {
  const TempFolder folder;
  nn::Sequential model(
      {std::make_shared<nn::Conv2d>(2, 3, nn::Conv2dOptions{.kernel_size = 1}), std::make_shared<nn::BatchNorm2d>(3)},
      2);
  Philox random(1);
  model.reset_parameters(random);
  model.forward(Tensor::full({2, 2, 2, 2}, 0.5));
  std::vector<std::string> names;
  for (const auto& [name, value] : state_dict(model)) names.push_back(name);
  CHECK(names ==
        std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"});
  const auto statistics = [](const nn::Module& m) { return m.named_buffers()[0].variable.data().to_vector<float>(); };
  const std::vector<float> mean = statistics(model);
  save_weights(folder / "w.safetensors", model);
  model.reset_parameters(random);
  CHECK(statistics(model) != mean);
  load_weights(folder / "w.safetensors", model);
  CHECK(statistics(model) == mean);

  // As PyTorch writes it.
  StateDict state = state_dict(model);
  state.emplace_back("1.num_batches_tracked", Tensor::full({}, 7.0, DType::i64));
  model.reset_parameters(random);
  load_state_dict(model, state);
  CHECK(statistics(model) == mean);
  state.emplace_back("0.num_batches_tracked", Tensor::full({}, 7.0, DType::i64));
  CHECK_THROWS_WITH(load_state_dict(model, state),
                    Catch::Contains("not in the model") && Catch::Contains("0.num_batches_tracked"));
}

TEST_CASE("weights survive a file, also as f64 and bf16") {
  const TempFolder folder;
  const auto model = make_model(1), other = make_model(2);
  save_weights(folder / "w.safetensors", *model);
  load_weights(folder / "w.safetensors", *other);
  CHECK(weights_of(*other) == weights_of(*model));
  FileContent content;
  for (const auto type : {SafetensorsType::f64, SafetensorsType::bf16, SafetensorsType::f16}) {
    content.type = type;
    content.write(folder / "zeros.safetensors");
    load_weights(folder / "zeros.safetensors", *other);
    CHECK(weights_of(*other)[2] == std::vector<float>(72, 0.f));
  }
}

TEST_CASE("every way in which a file does not fit is listed at once, and the model stays as it was") {
  const TempFolder folder;
  const std::string path = folder / "w.safetensors";
  const auto model = make_model();
  const auto weights = weights_of(*model);
  FileContent content;
  content.tensors[1].first = "0.bais";
  content.tensors[2].second = {18, 4};
  content.tensors.push_back({"5.weight", {1}});
  content.write(path);
  const std::string error = error_of(path, *model);
  INFO(error);
  CHECK_THAT(error, Catch::Contains(path) && Catch::Contains("missing: '0.bias'") && Catch::Contains("0.bais") &&
                        Catch::Contains("not in the model:") && Catch::Contains("5.weight") &&
                        Catch::Contains("'3.weight' is (18,4), the model has (4,18)"));
  CHECK(weights_of(*model) == weights);

  content = FileContent();
  content.type = SafetensorsType::i32;
  content.write(path);
  CHECK_THAT(error_of(path, *model), Catch::Contains("other type: '0.weight' is I32, the model has f32"));
  CHECK(weights_of(*model) == weights);
  const StateDict empty;
  CHECK_THROWS_WITH(load_state_dict(*model, empty), Catch::Contains("'3.bias'"));
}

TEST_CASE("a weight file that was cut or has a changed byte is refused, and the model stays as it was") {
  const TempFolder folder;
  const std::string path = folder / "w.safetensors", bad_path = folder / "bad.safetensors";
  const auto model = make_model(1), target = make_model(2);
  const auto weights = weights_of(*target);
  save_weights(path, *model);
  const std::string bytes = test::get_file(path);
  const std::size_t data_begin = bytes.size() - (24 + 3 + 72 + 4) * sizeof(float);
  for (std::size_t length = 0; length < bytes.size(); length += 7) {
    test::put_file(bad_path, bytes.substr(0, length));
    CHECK(error_of(bad_path, *target) != "no error");
  }
  for (std::size_t at = data_begin; at < bytes.size(); at += 3) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    test::put_file(bad_path, damaged);
    CHECK_THAT(error_of(bad_path, *target), Catch::Contains("damaged"));
  }
  CHECK(weights_of(*target) == weights);
}
