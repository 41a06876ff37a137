// A run that is stopped and continued ends where an uninterrupted one does.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

// All recipes at once: momentum, a schedule, augmentation; slow enough for a signal to come in the middle.
std::vector<std::string> rich_training(const std::string& data, const std::string& out) {
  return small_training(data, out,
                        {"--epochs", "6", "--momentum", "0.9", "--nesterov", "--schedule", "cosine", "--augment",
                         "crop-flip", "--warmup-epochs", "1", "--batch-size", "16"});
}

}  // namespace

TEST_CASE("a run that was interrupted in the middle of an epoch continues exactly") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 4000, 200);
  REQUIRE(heddle(rich_training(folder.path(), folder / "whole")).exit_code == 0);

  ProcessOptions options;
  options.arguments = rich_training(folder.path(), folder / "parts");
  Process process(heddle_path(), options);
  REQUIRE(process.wait_for_output("epoch 2/6"));
  process.send_signal(SIGINT);
  const ProcessResult first = process.wait();
  INFO(first.out);
  INFO(first.err);
  REQUIRE(first.exit_code == 130);
  CHECK(contains(first.out, "interrupted by SIGINT"));
  CHECK(contains(first.out, "heddle train --resume " + (folder / "parts")));
  CHECK(contains(first.out, folder / "parts/checkpoints/step-"));

  const ProcessResult rest = heddle({"train", "--resume", folder / "parts"});
  INFO(rest.err);
  REQUIRE(rest.exit_code == 0);
  CHECK(weights_of(folder / "parts") == weights_of(folder / "whole"));
  CHECK(metrics_of(folder / "parts") == metrics_of(folder / "whole"));
}

TEST_CASE("epochs count in all, and schedules go on where they were") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const std::vector<std::string> recipe = {
      "--lr", "0.1", "--schedule", "step", "--schedule-step", "4", "--schedule-gamma", "0.1"};
  const auto train = [&](const std::string& out, const std::string& epochs) {
    std::vector<std::string> more = recipe;
    more.insert(more.end(), {"--epochs", epochs});
    REQUIRE(heddle(small_training(folder.path(), folder / out, more)).exit_code == 0);
  };
  train("whole", "5");
  for (const std::string stop : {"2", "3"}) {
    train("stop" + stop, stop);
    const ProcessResult rest = heddle({"train", "--resume", folder / ("stop" + stop), "--epochs", "5"});
    REQUIRE(rest.exit_code == 0);
    CHECK(contains(rest.out, "--epochs 5 (the run has " + stop + ")"));
    CHECK(metrics_of(folder / ("stop" + stop)) == metrics_of(folder / "whole"));
    CHECK(weights_of(folder / ("stop" + stop)) == weights_of(folder / "whole"));
  }
  std::vector<double> rates;
  for (const std::string& line : metrics_of(folder / "stop3")) {
    rates.push_back(tools::Json::parse(line)["learning_rate"].get<double>());
  }
  REQUIRE(rates.size() == 5);
  // Epochs 0 to 3 with 0.1, epoch 4 with a tenth of it.
  CHECK(rates[2] == 0.1);
  CHECK(rates[3] == 0.1);
  CHECK(rates[4] == Approx(0.01).epsilon(1e-12));

  const ProcessResult finished = heddle({"train", "--resume", folder / "whole"});
  CHECK(finished.exit_code == 0);
  CHECK(contains(finished.out, "the run is finished: 5 of 5 epochs"));
  const ProcessResult fewer = heddle({"train", "--resume", folder / "whole", "--epochs", "3"});
  CHECK(fewer.exit_code == 2);
  CHECK(contains(fewer.err, "--epochs 3: the run has 5 finished epochs already; to train on give a number above 5"));
  CHECK(metrics_of(folder / "whole").size() == 5);
}

TEST_CASE("flags that contradict the run are refused with both values") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  REQUIRE(heddle(small_training(folder.path(), folder / "run", {"--epochs", "1"})).exit_code == 0);
  const ProcessResult result =
      heddle({"train", "--resume", folder / "run", "--lr", "0.2", "--seed", "9", "--epochs", "2"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "--lr 0.2 (the run has 0.05), --seed 9 (the run has 1)"));
  CHECK(heddle({"train", "--resume", folder / "run", "--preset", "best"}).exit_code == 2);
  CHECK(heddle({"train", "--resume", folder / "none"}).exit_code == 2);
  // The same value is no contradiction.
  CHECK(heddle({"train", "--resume", folder / "run", "--lr", "5e-2", "--epochs", "2"}).exit_code == 0);
}

TEST_CASE("a resumed run sees the same data or refuses") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  REQUIRE(heddle(small_training(folder.path(), folder / "run", {"--epochs", "1"})).exit_code == 0);
  write_small_dataset(folder.path(), 65, 32);
  const ProcessResult result = heddle({"train", "--resume", folder / "run", "--epochs", "2"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "the data files are not those of the run"));
}

TEST_CASE("a broken newest checkpoint is passed over, and lines after the one used are written again") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const auto train = [&](const std::string& out) {
    REQUIRE(heddle(small_training(folder.path(), folder / out, {"--epochs", "3", "--momentum", "0.9"})).exit_code == 0);
  };
  train("whole");
  train("cut");
  const std::string newest = folder / "cut/checkpoints/step-000000000057.safetensors";
  const std::string bytes = get_file(newest);
  put_file(newest, bytes.substr(0, bytes.size() / 2));
  std::string metrics = get_file(folder / "cut/metrics.jsonl");
  put_file(folder / "cut/metrics.jsonl", metrics.substr(0, metrics.size() - 9));  // a line cut by a kill
  const ProcessResult result = heddle({"train", "--resume", folder / "cut"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.err, "step-000000000057.safetensors"));
  CHECK(metrics_of(folder / "cut") == metrics_of(folder / "whole"));
  CHECK(weights_of(folder / "cut") == weights_of(folder / "whole"));
}

TEST_CASE("data given by a relative path is found again from another folder") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "data");
  write_small_dataset(folder / "data", 64, 32);
  ProcessOptions inside;
  inside.folder = folder.path();
  const ProcessResult first = heddle(small_training("data", "run", {"--epochs", "1"}), inside);
  INFO(first.err);
  REQUIRE(first.exit_code == 0);
  CHECK(contains(first.out, folder / "data/train-images-idx3-ubyte"));
  CHECK(heddle({"train", "--resume", folder / "run", "--epochs", "2"}).exit_code == 0);
  CHECK(heddle({"eval", "--checkpoint", folder / "run"}).exit_code == 0);
}

TEST_CASE("a run whose description or metrics are not what they should be is refused, and left as it is") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const std::string run = folder / "run";
  REQUIRE(heddle(small_training(folder.path(), run, {"--epochs", "1"})).exit_code == 0);
  const tools::Json good = json_file(run + "/run.json");
  const auto resume = [&] { return heddle({"train", "--resume", run, "--epochs", "2"}); };
  const auto refused = [&](const std::string& key, const tools::Json& value) {
    tools::Json broken = good;
    broken[key] = value;
    put_file(run + "/run.json", broken.dump());
    const ProcessResult result = resume();
    INFO(key << " " << value.dump() << ": " << result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "--resume " + run + ": '" + key + "' of run.json is broken"));
    CHECK(json_file(run + "/run.json") == broken);
  };
  refused("data", nullptr);
  refused("data", {{"files", 3}});
  refused("data", {{"files", {3}}});
  refused("data", {{"files", {{{"crc32", 3}}}}});
  refused("started", 3);
  refused("preset", nullptr);
  refused("resumed", "yesterday");
  put_file(run + "/run.json", good.dump());

  const std::string metrics = run + "/metrics.jsonl";
  REQUIRE(::unlink(metrics.c_str()) == 0);
  REQUIRE(::mkfifo(metrics.c_str(), 0600) == 0);
  const ProcessResult result = resume();
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, metrics + ": is a pipe, expected a file"));
}

TEST_CASE("a description whose settings are not those of the checkpoint is refused, naming both") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  const std::string run = folder / "run";
  REQUIRE(heddle(small_training(folder.path(), run, {"--epochs", "1"})).exit_code == 0);
  const tools::Json good = json_file(run + "/run.json");
  for (const auto& [name, value] : {std::pair<std::string, tools::Json>{"lr", 0.5}, {"seed", 9}, {"batch-size", 7}}) {
    tools::Json changed = good;
    const std::string before = changed["settings"][name].dump();
    changed["settings"][name] = value;
    put_file(run + "/run.json", changed.dump());
    const ProcessResult result = heddle({"train", "--resume", run, "--epochs", "2"});
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "was trained with other settings than run.json has: --" + name + " " + value.dump() +
                                   " (the checkpoint has " + before + ")"));
    CHECK(json_file(run + "/run.json") == changed);
  }
  put_file(run + "/run.json", good.dump());
  CHECK(heddle({"train", "--resume", run, "--epochs", "2"}).exit_code == 0);
}

TEST_CASE("a run that has lost its checkpoints says that it starts anew") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  const std::string run = folder / "run";
  REQUIRE(heddle(small_training(folder.path(), run, {"--epochs", "1"})).exit_code == 0);
  std::filesystem::remove_all(run + "/checkpoints");
  const ProcessResult result = heddle({"train", "--resume", run, "--epochs", "2"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.err, "warning: the run has no checkpoint, so it starts anew"));
  CHECK(metrics_of(run).size() == 2);
}

TEST_CASE("two processes cannot write one run") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 4000, 200);
  ProcessOptions options;
  options.arguments = small_training(folder.path(), folder / "run", {"--epochs", "1000"});
  Process first(heddle_path(), options);
  REQUIRE(first.wait_for_output("epoch 1/1000"));
  const ProcessResult second = heddle({"train", "--resume", folder / "run"});
  CHECK(second.exit_code == 1);
  CHECK(contains(second.err, "another process is writing this run"));
  first.send_signal(SIGTERM);
  CHECK(first.wait().exit_code == 143);
}

}  // namespace heddle::test
