// `heddle train --ranks N`: several ranks in this process train what one rank trains, report it once, and stop
// together.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>

#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

std::vector<tools::Json> epochs_of(const std::string& run) {
  std::vector<tools::Json> epochs;
  for (const std::string& line : metrics_of(run)) epochs.push_back(tools::Json::parse(line));
  return epochs;
}

void check_same_curve(const std::string& run, const std::string& wanted) {
  const std::vector<tools::Json> a = epochs_of(run), b = epochs_of(wanted);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i]["epoch"] == b[i]["epoch"]);
    CHECK(a[i]["step"] == b[i]["step"]);
    CHECK(a[i]["learning_rate"] == b[i]["learning_rate"]);
    for (const char* const name : {"train_loss", "test_loss"}) {
      CHECK(a[i][name].get<double>() == Approx(b[i][name].get<double>()).epsilon(1e-3));
    }
    for (const char* const name : {"train_accuracy", "test_accuracy"}) {
      CHECK(std::abs(a[i][name].get<double>() - b[i][name].get<double>()) <= 0.011);
    }
  }
}

}  // namespace

TEST_CASE("ranks train what one rank trains, whatever the number of images") {
  // 97 images: the shares and the last batch are ragged; batches of 2: some ranks have none.
  struct Row {
    int images;
    const char* batch_size;
  };
  for (const Row& row : {Row{97, "16"}, Row{97, "200"}, Row{11, "2"}}) {
    const TempFolder folder;
    write_small_dataset(folder.path(), row.images, 101);
    const auto train = [&](const std::string& ranks) {
      const std::string run = folder / ("ranks-" + ranks);
      const ProcessResult result = heddle(small_training(folder.path(), run,
                                                         {"--ranks", ranks, "--epochs", "3", "--batch-size",
                                                          row.batch_size, "--momentum", "0.9", "--augment", "flip"}));
      INFO(result.out << result.err);
      REQUIRE(result.exit_code == 0);
      // Reported once.
      CHECK(std::count(result.out.begin(), result.out.end(), '\n') < 20);
      return run;
    };
    const std::string one = train("1");
    for (const char* const ranks : {"2", "3", "4", "8"}) {
      CAPTURE(row.images, row.batch_size, ranks);
      check_same_curve(train(ranks), one);
    }
  }
}

TEST_CASE("ranks that exchange gradients in bf16 train nearly the same, pass the gate, and the run says so") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  const auto train = [&](const std::string& run, const std::string& dtype) {
    const ProcessResult result =
        heddle(small_training(folder.path(), folder / run,
                              {"--ranks", "3", "--epochs", "2", "--reduce-dtype", dtype, "--check-replicas", "1"}));
    INFO(result.out << result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(contains(result.out, "parity   a step of 3 ranks is that of one"));
    return folder / run;
  };
  const std::string wide = train("fp32", "fp32"), narrow = train("bf16", "bf16");
  CHECK(json_file(narrow + "/run.json")["settings"]["reduce-dtype"] == "bf16");
  CHECK(weights_of(narrow) != weights_of(wide));
  CHECK(weights_of(train("again", "bf16")) == weights_of(narrow));
  const std::vector<tools::Json> a = epochs_of(narrow), b = epochs_of(wide);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i]["train_loss"].get<double>() == Approx(b[i]["train_loss"].get<double>()).epsilon(0.01));
  }
  // A resumed run keeps it.
  CHECK(heddle({"train", "--resume", narrow, "--epochs", "3", "--reduce-dtype", "fp32"}).exit_code == 2);
  CHECK(heddle({"train", "--resume", narrow, "--epochs", "3"}).exit_code == 0);
}

TEST_CASE("a run with ranks repeats bit for bit") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  std::vector<std::string> weights;
  for (const char* const run : {"a", "b"}) {
    REQUIRE(heddle(small_training(folder.path(), folder / run, {"--ranks", "3", "--epochs", "2"})).exit_code == 0);
    weights.push_back(weights_of(folder / run));
  }
  CHECK(weights[0] == weights[1]);
}

TEST_CASE("the parity gate and comparisons of the ranks change nothing in a run") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  const auto train = [&](const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--ranks", "3", "--epochs", "2", "--optimizer", "adam", "--augment", "crop-flip"};
    all.insert(all.end(), more.begin(), more.end());
    const ProcessResult result = heddle(small_training(folder.path(), folder / run, all));
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "\nparity   a step of 3 ranks is that of one") == (run == "checked"));
    return weights_of(folder / run);
  };
  const std::string checked = train("checked", {"--check-replicas", "1"});
  CHECK(train("plain", {"--no-parity-gate"}) == checked);
  // Before a run goes on, too, perhaps with another number of ranks.
  const ProcessResult more = heddle({"train", "--resume", folder / "plain", "--epochs", "3", "--parity-gate"});
  CHECK(contains(more.out, "parity   a step of 3 ranks is that of one"));
  const ProcessResult none = heddle({"train", "--resume", folder / "checked", "--epochs", "3", "--no-parity-gate"});
  CHECK(!contains(none.out, "parity "));
  CHECK(weights_of(folder / "plain") == weights_of(folder / "checked"));
}

TEST_CASE("a run with ranks that was interrupted continues exactly, and with another number of ranks") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 400, 100);
  const auto arguments = [&](const std::string& out) {
    return small_training(folder.path(), folder / out,
                          {"--ranks", "2", "--epochs", "6", "--momentum", "0.9", "--schedule", "cosine"});
  };
  REQUIRE(heddle(arguments("whole")).exit_code == 0);
  for (const char* const ranks : {"2", "3"}) {
    const std::string run = folder / ("parts-" + std::string(ranks));
    ProcessOptions options;
    options.arguments = arguments("parts-" + std::string(ranks));
    Process process(heddle_path(), options);
    REQUIRE(process.wait_for_output("epoch 1/6"));
    process.send_signal(SIGTERM);
    const ProcessResult first = process.wait();
    INFO(first.out << first.err);
    REQUIRE(first.exit_code == 143);
    CHECK(contains(first.out, "interrupted by SIGTERM"));
    const ProcessResult rest = heddle({"train", "--resume", run, "--ranks", ranks});
    INFO(rest.out << rest.err);
    REQUIRE(rest.exit_code == 0);
    check_same_curve(run, folder / "whole");
    if (std::string(ranks) == "2") CHECK(weights_of(run) == weights_of(folder / "whole"));
  }
}

TEST_CASE("a loss that blows up stops all ranks at the same step, with one message") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  const ProcessResult result = heddle(small_training(folder.path(), folder / "run", {"--ranks", "4", "--lr", "1e30"}));
  INFO(result.out << result.err);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "NaN or infinite at step "));
  CHECK(contains(result.err, "last finite loss was"));
  CHECK(contains(result.err, "no checkpoint had been written yet"));
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
}

TEST_CASE("what fails on rank 0 ends all ranks at once, with its reason") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  put_file(folder / "file", "");
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result =
      heddle(small_training(folder.path(), folder / "file/run", {"--ranks", "3", "--epochs", "1"}));
  INFO(result.out << result.err);
  CHECK(result.exit_code != 0);
  CHECK(contains(result.err, "file"));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
}

}  // namespace heddle::test
