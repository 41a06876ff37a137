// `heddle train --device cuda` as a user runs it, on the GPU that this build has: the simulated one, or a real one.
// A program of its own, which is skipped where there is none.
#include <cmath>
#include <csignal>

#include "engine/device/device_runtime.h"
#include "nccl_comm/nccl_communicator.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::test {

TEST_CASE("two epochs of LeNet on the GPU land where the CPU does") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 400, 200);
  std::vector<std::vector<std::string>> metrics;
  for (const std::string device : {"cpu", "cuda"}) {
    const std::string run = folder / device;
    const ProcessResult result = heddle(
        small_training(folder.path(), run, {"--epochs", "2", "--momentum", "0.9", "--lr", "0.02", "--device", device}));
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    metrics.push_back(metrics_of(run));
    REQUIRE(metrics.back().size() == 2);
  }
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    const tools::Json cpu = tools::Json::parse(metrics[0][epoch]), gpu = tools::Json::parse(metrics[1][epoch]);
    CHECK(gpu["step"] == cpu["step"]);
    CHECK(gpu["learning_rate"] == cpu["learning_rate"]);
    CHECK(std::abs(gpu["test_accuracy"].get<double>() - cpu["test_accuracy"].get<double>()) <= 0.005);
    CHECK(gpu["train_loss"].get<double>() == Approx(cpu["train_loss"].get<double>()).epsilon(0.01));
  }
}

TEST_CASE("two ranks on one GPU, or with a GPU each, land where one rank does") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 100);
  const bool two_gpus = is_registered(Device::cuda(1)), nccl = comm::why_no_nccl().empty();
  std::vector<tools::Json> last;
  for (const auto& [ranks, device] : {std::pair{"1", "cuda"}, {"2", "cuda:0"}, {"2", "cuda:0,1"}, {"2", "cuda"}}) {
    if (!two_gpus && std::string(device) == "cuda:0,1") continue;
    const std::string run = folder / (std::string(ranks) + device);
    const ProcessResult result = heddle(small_training(
        folder.path(), run, {"--epochs", "2", "--momentum", "0.9", "--device", device, "--ranks", ranks}));
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    last.push_back(tools::Json::parse(metrics_of(run).back()));
    if (std::string(ranks) == "1") continue;
    const bool apart = two_gpus && std::string(device) != "cuda:0";
    CHECK(contains(result.out, apart ? "device   cuda:0, cuda:1: " : "device   cuda:0: "));
    CHECK(contains(result.out, apart && nccl ? "exchanged by nccl" : "exchanged by in-process"));
  }
  for (const tools::Json& other : last) {
    for (const char* const name : {"train_loss", "test_loss", "test_accuracy"}) {
      CHECK(other[name].get<double>() == Approx(last[0][name].get<double>()).epsilon(0.01));
    }
  }
}

TEST_CASE("more ranks than GPUs share them in turn, and a run with NCCL that was interrupted continues exactly") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 20);
  const auto arguments = [&](const std::string& out, const std::string& ranks) {
    return small_training(folder.path(), folder / out, {"--epochs", "3", "--device", "cuda", "--ranks", ranks});
  };
  const ProcessResult shared = heddle(arguments("shared", "3"));
  INFO(shared.out << shared.err);
  CHECK(shared.exit_code == 0);
  REQUIRE(heddle(arguments("whole", "2")).exit_code == 0);
  ProcessOptions options;
  options.arguments = arguments("parts", "2");
  Process process(heddle_path(), options);
  REQUIRE(process.wait_for_output("epoch 1/3"));
  process.send_signal(SIGINT);
  const ProcessResult first = process.wait();
  INFO(first.out << first.err);
  REQUIRE(first.exit_code == 130);
  const ProcessResult rest = heddle({"train", "--resume", folder / "parts"});
  INFO(rest.out << rest.err);
  REQUIRE(rest.exit_code == 0);
  CHECK(weights_of(folder / "parts") == weights_of(folder / "whole"));
  CHECK(metrics_of(folder / "parts") == metrics_of(folder / "whole"));
}

TEST_CASE("a reproducible run on the GPU has the same bits for any number of ranks") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 40);
  std::vector<std::vector<std::string>> runs;
  // The first recorded, the second called kernel by kernel; ranks without a micro-shard at the end.
  for (const auto& [ranks, graph] :
       {std::pair{"1", "--graph"}, {"1", "--no-graph"}, {"2", "--graph"}, {"4", "--graph"}, {"9", "--graph"}}) {
    const std::string run = folder / (std::string(ranks) + graph);
    const ProcessResult result =
        heddle(small_training(folder.path(), run,
                              {"--reproducible", "--epochs", "2", "--momentum", "0.9", "--augment", "crop-flip",
                               "--batch-size", "16", "--device", "cuda", "--ranks", ranks, graph}));
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    runs.push_back(metrics_of(run));
    runs.back().push_back(weights_of(run));
    CAPTURE(ranks, graph);
    CHECK(runs.back() == runs.front());
  }
}

TEST_CASE("C22: repeatable runs on request, whatever the search for algorithms finds first") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 100);
  int runs = 0;
  // Weights and losses of a run that searches anew.
  const auto train = [&](std::vector<std::string> more) {
    const std::string name = std::to_string(++runs);
    ProcessOptions options;
    options.environment = {{"XDG_CACHE_HOME", folder / ("cache" + name)}, {"CUDASIM_NONDETERMINISTIC", "1"}};
    more.insert(more.end(), {"--epochs", "2", "--device", "cuda", "--kernels", "vendor", "--time-algorithms"});
    const ProcessResult result = heddle(small_training(folder.path(), folder / name, more), options);
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(contains(result.out, "seed "));
    std::vector<std::string> all = metrics_of(folder / name);
    all.push_back(weights_of(folder / name));
    return all;
  };
  for (const std::string ranks : {"1", "2"}) {
    INFO(ranks << " ranks");
    const std::vector<std::string> first = train({"--deterministic", "--seed", "7", "--ranks", ranks});
    CHECK(train({"--deterministic", "--seed", "7", "--ranks", ranks}) == first);
    CHECK(train({"--deterministic", "--seed", "8", "--ranks", ranks}).back() != first.back());
  }
  // What the option is for: on the simulated GPU, whose first choice is not repeatable here, other weights each time.
  // On hardware they may be.
  if (runtime_for(Device::cuda(0)).is_simulated())
    CHECK(train({"--seed", "7"}).back() != train({"--seed", "7"}).back());
}

TEST_CASE("a run on the GPU that was interrupted continues exactly") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 200, 20);
  const auto arguments = [&](const std::string& out) {
    return small_training(
        folder.path(), folder / out,
        {"--epochs", "3", "--momentum", "0.9", "--augment", "flip", "--schedule", "cosine", "--device", "cuda"});
  };
  REQUIRE(heddle(arguments("whole")).exit_code == 0);
  ProcessOptions options;
  options.arguments = arguments("parts");
  Process process(heddle_path(), options);
  REQUIRE(process.wait_for_output("epoch 1/3"));
  process.send_signal(SIGINT);
  const ProcessResult first = process.wait();
  INFO(first.out << first.err);
  REQUIRE(first.exit_code == 130);
  CHECK(contains(first.out, "interrupted by SIGINT"));
  const ProcessResult rest = heddle({"train", "--resume", folder / "parts"});
  INFO(rest.out << rest.err);
  REQUIRE(rest.exit_code == 0);
  CHECK(weights_of(folder / "parts") == weights_of(folder / "whole"));
  CHECK(metrics_of(folder / "parts") == metrics_of(folder / "whole"));
}

TEST_CASE("a loss that blows up on the GPU stops the run within ten steps") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const ProcessResult result =
      heddle(small_training(folder.path(), folder / "run", {"--lr", "1e30", "--device", "cuda"}));
  INFO(result.out << result.err);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "NaN or infinite at step "));
  CHECK(contains(result.err, "last finite loss was"));
  const std::size_t place = result.err.find("at step ") + 8;
  CHECK(std::stoi(result.err.substr(place)) <= 10);
}

}  // namespace heddle::test
