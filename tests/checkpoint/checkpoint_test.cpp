// Saving and resuming runs: exactness, refusals, folders.
#include "engine/checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "engine/checkpoint/safetensors.h"
#include "engine/nn/dropout.h"
#include "engine/nn/linear.h"
#include "engine/nn/sequential.h"
#include "engine/optim/adam.h"
#include "engine/optim/lr_schedule.h"
#include "engine/optim/sgd.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::checkpoint;
using test::TempFolder;

namespace {

namespace fs = std::filesystem;

// One weight and one bias, both 1, and a dropout.
struct Model {
  std::shared_ptr<nn::Sequential> module = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Linear>(1, 1), std::make_shared<nn::Dropout>(0.5, 3)});
  nn::ParameterBuffer buffer;

  Model() : buffer(ones(*module)) {}
  float weight() const { return module->named_parameters()[0].variable.data().to_vector<float>()[0]; }
  // An update with all gradients 1.
  float update(optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    for (auto& p : module->named_parameters()) p.variable.grad().copy_from(Tensor::full(p.variable.shape(), 1.0));
    optimizer.step();
    return weight();
  }

 private:
  static nn::Module& ones(nn::Module& module) {
    for (auto& p : module.named_parameters())
      p.variable.mutable_data().copy_from(Tensor::full(p.variable.shape(), 1.0));
    return module;
  }
};

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("SGD with momentum walks the known sequence across a stop after step 2") {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  {
    Model model;
    optim::Sgd sgd(model.buffer, 0.1, SgdParams{.momentum = 0.9});
    CHECK(model.update(sgd) == Approx(0.9));
    CHECK(model.update(sgd) == Approx(0.71));
    save_checkpoint(path, *model.module, &sgd, {.step = 2});
  }
  Model model;
  optim::Sgd sgd(model.buffer, 0.5, SgdParams{.momentum = 0.9});
  CHECK(load_checkpoint(path, *model.module, &sgd).step == 2);
  CHECK(sgd.step_count() == 2);
  CHECK(sgd.learning_rate() == 0.1);
  CHECK(model.update(sgd) == Approx(0.439));
  CHECK(model.update(sgd) == Approx(0.0951));
}

TEST_CASE("Adam walks the known sequence across a stop") {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  {
    Model model;
    optim::Adam adam(model.buffer, 0.1);
    CHECK(model.update(adam) == Approx(0.9));
    CHECK(model.update(adam) == Approx(0.8));
    save_checkpoint(path, *model.module, &adam, {.step = 2});
  }
  Model model;
  optim::Adam adam(model.buffer, 0.1);
  load_checkpoint(path, *model.module, &adam);
  CHECK(model.update(adam) == Approx(0.7));
}

TEST_CASE("averages are kept beside the weights and go on exactly after a stop") {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  const SgdParams params{.momentum = 0.9};
  Model whole;
  optim::Sgd whole_sgd(whole.buffer, 0.1, params);
  whole_sgd.average_weights(0.9);
  for (int i = 0; i < 2; ++i) whole.update(whole_sgd);
  save_checkpoint(path, *whole.module, &whole_sgd, {.step = 2});
  const std::vector<float> average = whole_sgd.averages().to_vector<float>();
  for (int i = 0; i < 2; ++i) whole.update(whole_sgd);

  const SafetensorsFile file = SafetensorsFile::open(path);
  for (const char* const name : {"optimizer/average/0.weight", "optimizer/average/0.bias"}) {
    REQUIRE(file.find(name) != nullptr);
    float value = 0;
    file.read(*file.find(name), &value);
    CHECK(value == average[0]);
  }

  Model rest;
  optim::Sgd rest_sgd(rest.buffer, 0.1, params);
  rest_sgd.average_weights(0.9);
  load_checkpoint(path, *rest.module, &rest_sgd);
  CHECK(rest_sgd.averages().to_vector<float>() == average);
  CHECK(rest.weight() == Approx(0.71));
  for (int i = 0; i < 2; ++i) rest.update(rest_sgd);
  CHECK(rest_sgd.averages().to_vector<float>() == whole_sgd.averages().to_vector<float>());
  CHECK(rest.weight() == whole.weight());

  Model used;
  bool averaged = false;
  CHECK(load_for_use(path, *used.module, &averaged).step == 2);
  CHECK(averaged);
  CHECK(used.weight() == average[0]);

  // With or without is a setting of the optimiser, as momentum is.
  Model other;
  optim::Sgd plain(other.buffer, 0.1, params);
  CHECK_THROWS_WITH(load_checkpoint(path, *other.module, &plain),
                    Catch::Contains("it has optimiser state 'average/0.weight'"));
  save_checkpoint(path, *other.module, &plain, {.step = 2});
  CHECK_THROWS_WITH(load_checkpoint(path, *rest.module, &rest_sgd),
                    Catch::Contains("the moving average of '0.weight' is missing"));
  load_for_use(path, *used.module, &averaged);
  CHECK_FALSE(averaged);
  CHECK(used.weight() == other.weight());
}

TEST_CASE("a step schedule goes on where the counters say, stopped after epoch 2 or 3") {
  const optim::LrSchedule schedule({.kind = optim::ScheduleKind::step,
                                    .learning_rate = 0.1,
                                    .milestones = {4},
                                    .gamma = 0.1,
                                    .steps_per_epoch = 10});
  const TempFolder folder;
  for (const std::int64_t last : {2, 3}) {
    Model model;
    save_checkpoint(folder / "c.safetensors", *model.module, nullptr,
                    {.epoch = last + 1, .step = 10 * (last + 1), .total_epochs = 5});
    const TrainingState state = load_checkpoint(folder / "c.safetensors", *model.module);
    std::vector<double> rates;
    for (std::int64_t e = state.epoch; e < state.total_epochs; ++e) rates.push_back(schedule.at_epoch(e));
    REQUIRE(rates.size() == (last == 2 ? 2u : 1u));
    if (last == 2) CHECK(rates.front() == Approx(0.1));
    CHECK(rates.back() == Approx(0.01));
  }
}

TEST_CASE("all of the training state and the layers' random streams come back exactly") {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  const TrainingState state{.model = "lenet \"quoted\" \xc3\xa9",
                            .epoch = 3,
                            .batch = 17,
                            .step = 721,
                            .total_epochs = 20,
                            .seed = 0xffffffffffffffffu,
                            .best_metric = 0.1 + 0.2,
                            .best_epoch = 2,
                            .settings = "{\"lr\": 0.1, \"deep\": [[1, 2], {\"a\": null}]}"};
  Model model;
  *model.module->named_random_streams()[0].second = {.seed = 0x8000000000000001u, .offset = 77};
  save_checkpoint(path, *model.module, nullptr, state);
  Model other;
  const TrainingState loaded = load_checkpoint(path, *other.module);
  CHECK(loaded.model == state.model);
  CHECK(loaded.epoch == 3);
  CHECK(loaded.batch == 17);
  CHECK(loaded.step == 721);
  CHECK(loaded.total_epochs == 20);
  CHECK(loaded.seed == state.seed);
  CHECK(loaded.best_metric == state.best_metric);
  CHECK(loaded.best_epoch == 2);
  CHECK(loaded.settings == state.settings);
  CHECK(read_training_state(path).step == 721);
  const RandomStream stream = *other.module->named_random_streams()[0].second;
  CHECK(stream.seed == 0x8000000000000001u);
  CHECK(stream.offset == 77);
  CHECK_THROWS_AS(save_checkpoint(path, *model.module, nullptr, {.best_metric = std::nan("")}), InvalidArgument);
}

TEST_CASE("a checkpoint of another optimiser, or of other settings, is refused with both sides and changes nothing") {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  Model saved;
  optim::Adam adam(saved.buffer, 0.1);
  saved.update(adam);
  save_checkpoint(path, *saved.module, &adam, {});

  Model model;
  optim::Sgd sgd(model.buffer, 0.3, SgdParams{.momentum = 0.9});
  CHECK_THROWS_WITH(load_checkpoint(path, *model.module, &sgd),
                    Catch::Contains("optimizer adam") && Catch::Contains("uses sgd"));
  save_checkpoint(path, *saved.module, nullptr, {});
  CHECK_THROWS_WITH(load_checkpoint(path, *model.module, &sgd), Catch::Contains("without an optimiser"));
  optim::Sgd plain(saved.buffer, 0.1);
  save_checkpoint(path, *saved.module, &plain, {});
  CHECK_THROWS_WITH(load_checkpoint(path, *model.module, &sgd), Catch::Contains("no state 'momentum'"));
  save_checkpoint(path, *model.module, &sgd, {});
  CHECK_THROWS_WITH(load_checkpoint(path, *saved.module, &plain), Catch::Contains("has optimiser state 'momentum'"));
  CHECK(model.weight() == 1.f);
  CHECK(saved.weight() == Approx(0.9));
  CHECK(sgd.learning_rate() == 0.3);
}

TEST_CASE("a model with other layers refuses the checkpoint") {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  Model saved;
  save_checkpoint(path, *saved.module, nullptr, {});
  nn::Linear linear(1, 1);
  CHECK_THROWS_WITH(load_checkpoint(path, linear), Catch::Contains("random streams"));
  nn::Sequential wider({std::make_shared<nn::Linear>(2, 1), std::make_shared<nn::Dropout>(0.5)});
  CHECK_THROWS_WITH(load_checkpoint(path, wider), Catch::Contains("'0.weight' is (1,1), the model has (1,2)"));
}

TEST_CASE(
    "a checkpoint cut anywhere or with any byte changed is refused or unchanged in meaning; nothing is half loaded") {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors", bad = folder / "bad.safetensors";
  Model saved;
  optim::Sgd sgd(saved.buffer, 0.1, SgdParams{.momentum = 0.9});
  sgd.average_weights(0.9);
  saved.update(sgd);
  save_checkpoint(path, *saved.module, &sgd, {.model = "m", .step = 5, .seed = 9});
  const std::string bytes = test::get_file(path);
  Model model;
  optim::Sgd target(model.buffer, 0.1, SgdParams{.momentum = 0.9});
  target.average_weights(0.9);
  const std::vector<float> average = target.averages().to_vector<float>();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    test::put_file(bad, bytes.substr(0, length));
    CHECK_THROWS_AS(load_checkpoint(bad, *model.module, &target), IoError);
    CHECK_THROWS_AS(load_for_use(bad, *model.module), IoError);
  }
  int accepted = 0;
  const auto change = [&](std::size_t at, char value) {
    std::string damaged = bytes;
    damaged[at] = value;
    test::put_file(bad, damaged);
    for (const bool to_train : {true, false}) {
      try {
        to_train ? load_checkpoint(bad, *model.module, &target) : load_for_use(bad, *model.module);
        ++accepted;
      } catch (const IoError&) {
      }
    }
  };
  for (std::size_t at = 0; at < bytes.size(); ++at) change(at, static_cast<char>(bytes[at] ^ 1));
  const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  std::mt19937 random(5);
  for (int i = 0; i < 10000;) {
    const std::size_t at = random() % bytes.size();
    const char value = static_cast<char>(random());
    if (value == bytes[at] || (is_blank(value) && is_blank(bytes[at]))) continue;
    change(at, value);
    ++i;
  }
  // White space that fills up the header is the only part without a meaning, and a changed blank is no white space.
  CHECK(accepted == 0);
  CHECK(model.weight() == 1.f);
  CHECK(target.averages().to_vector<float>() == average);
  CHECK(target.step_count() == 0);
}

TEST_CASE("weights alone are no checkpoint, and hostile state text is refused cheaply") {
  const TempFolder folder;
  const std::string path = folder / "c.safetensors";
  const float zero = 0;
  const std::vector<TensorToWrite> tensors{{"0.weight", SafetensorsType::f32, {1, 1}, &zero},
                                           {"0.bias", SafetensorsType::f32, {1}, &zero}};
  Model model;
  const auto refused_with = [&](const SafetensorsMetadata& metadata, const std::string& reason) {
    write_safetensors(path, tensors, metadata);
    CHECK_THROWS_WITH(load_checkpoint(path, *model.module), Catch::Contains(path) && Catch::Contains(reason));
  };
  refused_with({}, "no checkpoint");
  const auto with_state = [](const std::string& state) {
    return SafetensorsMetadata{{"heddle.state", state}, {"heddle.settings", "{}"}};
  };
  refused_with(with_state("{"), "no JSON object");
  refused_with(with_state("[]"), "no JSON object");
  refused_with(with_state(std::string(100000, '[')), "deeper");
  refused_with(with_state(std::string(1000000, ' ')), "larger");
  refused_with(with_state(R"({"format": 2})"), "format 2");
  refused_with(with_state(R"({"format": 1, "model": 3})"), "'model'");
  // Settings are parsed by whoever wrote them, so they are kept cheap too, for parsers that are not.
  const auto with_settings = [](const std::string& settings) {
    return SafetensorsMetadata{{"heddle.state", "{}"}, {"heddle.settings", settings}};
  };
  refused_with(with_settings(std::string(100000, '[')), "settings are larger or deeper");
  refused_with(with_settings(std::string(1000000, ' ')), "settings are larger or deeper");
  std::string many_names = "{";
  for (int i = 0; i < 20000; ++i) many_names += join_text(i == 0 ? "" : ",", "\"", i, "\":0");
  refused_with(with_settings(many_names + "}"), "settings are larger or deeper");
  CHECK_THROWS_WITH(save_checkpoint(path, *model.module, nullptr, {.settings = std::string(1000000, ' ')}),
                    Catch::Contains("settings of 1000000 bytes"));
  const std::string good = R"({"format":1,"model":"m","epoch":0,"batch":0,"step":EEE,"total_epochs":0,"seed":1,)"
                           R"("best_metric":null,"best_epoch":0,"optimizer":null,"random_streams":{}})";
  for (const std::string step : {"-1", "1e3", "18446744073709551615", "\"5\"", "null"}) {
    std::string text = good;
    text.replace(text.find("EEE"), 3, step);
    refused_with(with_state(text), "'step'");
  }
}

TEST_CASE("a folder keeps the last few and the best, and the newest whole one is found") {
  const TempFolder scratch;
  const std::string folder = scratch / "run/checkpoints";
  CheckpointFolder checkpoints(folder, 2);
  CHECK_FALSE(find_checkpoint(folder).has_value());
  CHECK_THROWS_WITH(resolve_checkpoint(folder), Catch::Contains("no checkpoint"));
  Model model;
  optim::Sgd sgd(model.buffer, 0.1);
  for (const std::int64_t step : {9, 10, 100}) {
    model.update(sgd);
    checkpoints.save(*model.module, &sgd, {.step = step}, step == 9);
  }
  CHECK(names_in(folder) ==
        std::vector<std::string>{"best.safetensors", "step-000000000010.safetensors", "step-000000000100.safetensors"});
  CHECK(find_checkpoint(folder)->path == folder + "/step-000000000100.safetensors");
  CHECK(resolve_checkpoint(scratch / "run").path == folder + "/step-000000000100.safetensors");
  CHECK(resolve_checkpoint(scratch / "run", Prefer::best).path == folder + "/best.safetensors");
  CHECK(read_training_state(checkpoints.best_path()).step == 9);

  // The newest is cut: the one before is found, and the reason is told. Other files do not matter.
  const std::string newest = folder + "/step-000000000100.safetensors";
  test::put_file(newest, test::get_file(newest).substr(0, 300));
  test::put_file(folder + "/step-000000000999.safetensors.tmp", "x");
  test::put_file(folder + "/step-7.safetensors", "x");
  const FoundCheckpoint found = *find_checkpoint(folder);
  CHECK(found.path == folder + "/step-000000000010.safetensors");
  REQUIRE(found.skipped.size() == 1);
  CHECK_THAT(found.skipped[0], Catch::Contains(newest));

  // The run goes on from step 10: the damaged later file is set aside.
  checkpoints.save(*model.module, &sgd, {.step = 11});
  CHECK(find_checkpoint(folder)->path == folder + "/step-000000000011.safetensors");
  CHECK(fs::exists(newest + ".superseded"));
  CHECK(fs::exists(folder + "/step-000000000010.safetensors"));

  // It stays until the run has got as far again, and no more than the last few stay.
  for (const char* name : {"000000000300", "000000000400", "000000000500"}) {
    test::put_file(folder + "/step-" + name + ".safetensors.superseded", "x");
  }
  fs::remove(folder + "/step-000000000999.safetensors.tmp");
  fs::remove(folder + "/step-7.safetensors");
  checkpoints.save(*model.module, &sgd, {.step = 12});
  CHECK(names_in(folder) == std::vector<std::string>{"best.safetensors", "step-000000000011.safetensors",
                                                     "step-000000000012.safetensors",
                                                     "step-000000000400.safetensors.superseded",
                                                     "step-000000000500.safetensors.superseded"});
  checkpoints.save(*model.module, &sgd, {.step = 400});
  CHECK_FALSE(fs::exists(folder + "/step-000000000400.safetensors.superseded"));
  CHECK(fs::exists(folder + "/step-000000000500.safetensors.superseded"));
}

TEST_CASE("a folder with broken checkpoints only, or none at all, is an error that says so") {
  const TempFolder scratch;
  test::put_file(scratch / "step-000000000001.safetensors", "broken");
  CHECK_THROWS_WITH(find_checkpoint(scratch.path()), Catch::Contains("none of its 1 checkpoints is whole"));
  CHECK_THROWS_AS(find_checkpoint(scratch / "missing"), IoError);
  CHECK_THROWS_WITH(resolve_checkpoint(scratch / "missing"), Catch::Contains("does not exist"));
  test::put_file(scratch / "file", "");
  CHECK_THROWS_AS(CheckpointFolder(scratch / "file"), IoError);
  CHECK_THROWS_AS(CheckpointFolder(scratch / "x", 0), InvalidArgument);
}
