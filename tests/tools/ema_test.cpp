// `heddle train --ema`: the moving average of the weights through a whole training, and where its values go.
#include <cstring>
#include <map>

#include "engine/checkpoint/safetensors.h"
#include "nccl_comm/rank_threads.h"
#include "tests/support/catch.h"
#include "tests/support/device_training.h"
#include "tests/support/relative_distance.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

using Strings = std::vector<std::string>;

// Bytes of all tensors of a checkpoint, by name.
std::map<std::string, std::string> tensors_of(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::map<std::string, std::string> tensors;
  for (const TensorEntry& entry : file.entries()) {
    std::string bytes(static_cast<std::size_t>(entry.numel()) * 4, '\0');
    file.read(entry, bytes.data());
    tensors[entry.name] = bytes;
  }
  return tensors;
}

struct Trained {
  std::vector<float> weights, averages;
};

// Rank 0's after two epochs.
Trained train(const tools::Settings& settings, const datasets::ImageDatasetPair& data, int ranks) {
  Trained result;
  const auto run = [&](comm::Communicator* communicator) {
    Training training(settings, data, Device::cpu(), communicator);
    for (int epoch = 0; epoch < 2; ++epoch) {
      training.train_epoch();
      training.trainer.finish_steps();
      training.trainer.finish_epoch();
    }
    if (communicator != nullptr && communicator->rank() != 0) return;
    result.weights = training.weights();
    result.averages = training.trainer.optimizer().averages().to_vector<float>();
  };
  if (ranks == 1) {
    run(nullptr);
  } else {
    comm::run_rank_threads(ranks, {}, [&](comm::Communicator& communicator) { run(&communicator); });
  }
  return result;
}

}  // namespace

TEST_CASE("averages do not change the training, and they are what a run evaluates") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 100);
  const Strings recipe = {"--epochs", "2", "--momentum", "0.9"};
  const auto train_run = [&](const std::string& out, const Strings& more) {
    Strings flags = recipe;
    flags.insert(flags.end(), more.begin(), more.end());
    const ProcessResult result = heddle(small_training(folder.path(), folder / out, flags));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
  };
  train_run("plain", {});
  train_run("ema", {"--ema", "0.9"});
  CHECK(weights_of(folder / "ema") == weights_of(folder / "plain"));
  const tools::Json plain = tools::Json::parse(metrics_of(folder / "plain").back());
  const tools::Json ema = tools::Json::parse(metrics_of(folder / "ema").back());
  CHECK(ema["train_loss"] == plain["train_loss"]);
  CHECK(ema["test_loss"] != plain["test_loss"]);

  // The checkpoint has both, and eval reads the averages.
  const std::string newest = folder / "ema/checkpoints/step-000000000014.safetensors";
  const auto with = tensors_of(newest),
             without = tensors_of(folder / "plain/checkpoints/step-000000000014.safetensors");
  for (const auto& [name, bytes] : without) {
    INFO(name);
    REQUIRE(with.contains(name));
    CHECK((with.at(name) == bytes));
  }
  CHECK(with.contains("optimizer/average/0.weight"));
  const auto evaluate = [&](const std::string& checkpoint) {
    const ProcessResult result = heddle({"eval", "--json", "--threads", "1", "--checkpoint", checkpoint});
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return tools::Json::parse(result.out);
  };
  const tools::Json averaged = evaluate(folder / "ema");
  CHECK(averaged["averaged_weights"] == true);
  CHECK(averaged["loss"] == ema["test_loss"]);
  CHECK(averaged["accuracy"] == ema["test_accuracy"]);
  const tools::Json raw = evaluate(folder / "plain");
  CHECK(raw["averaged_weights"] == false);
  CHECK(raw["loss"] == plain["test_loss"]);
}

TEST_CASE("a run with averages that stopped in the middle of an epoch continues exactly") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 330, 50);
  const Strings flags = {"--epochs", "2",    "--optimizer",        "adamw", "--lr",   "0.002",
                         "--ema",    "0.95", "--checkpoint-steps", "4",     "--keep", "100"};
  REQUIRE(heddle(small_training(folder.path(), folder / "whole", flags)).exit_code == 0);
  REQUIRE(heddle(small_training(folder.path(), folder / "parts", flags)).exit_code == 0);
  const std::string below = folder / "parts/checkpoints/";
  for (const char* const name : {"best", "step-000000000011", "step-000000000012", "step-000000000016",
                                 "step-000000000020", "step-000000000022"}) {
    std::remove((below + name + ".safetensors").c_str());
  }
  const ProcessResult rest = heddle({"train", "--resume", folder / "parts"});
  INFO(rest.out << rest.err);
  REQUIRE(rest.exit_code == 0);
  CHECK(contains(rest.out, "from epoch 1, step 8"));
  CHECK(metrics_of(folder / "parts") == metrics_of(folder / "whole"));
  const char* const last = "checkpoints/step-000000000022.safetensors";
  CHECK((tensors_of(folder / "parts/" + last) == tensors_of(folder / "whole/" + last)));

  const ProcessResult other = heddle({"train", "--resume", folder / "parts", "--epochs", "3", "--ema", "0.5"});
  CHECK(other.exit_code == 2);
  CHECK(contains(other.err, "--ema 0.5 (the run has 0.95)"));
}

TEST_CASE("averages are the same for all ranks and pieces of a batch, to the bit where a run is reproducible") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 70, .n_test = 10});
  tools::Settings settings;
  settings.batch_size = 20;
  settings.momentum = 0.9;
  settings.ema = 0.8;
  const Trained one = train(settings, data, 1);
  CHECK(testing::relative_distance(one.averages, one.weights) > 1e-4);
  CHECK(testing::relative_distance(train(settings, data, 2).averages, one.averages) < 1e-4);
  settings.accumulate = 3;
  CHECK(testing::relative_distance(train(settings, data, 1).averages, one.averages) < 1e-4);
  settings.accumulate = 1;
  settings.reproducible = true;
  const Trained reproducible = train(settings, data, 1);
  CHECK(testing::relative_distance(reproducible.averages, one.averages) < 1e-4);
  for (const int ranks : {2, 4}) CHECK((train(settings, data, ranks).averages == reproducible.averages));
}

}  // namespace heddle::test
