// `heddle train --reproducible`: the loss curve and the weights have the same bits for every number of ranks and
// threads, and for a run that goes on with other numbers.
#include <array>
#include <csignal>

#include "engine/core/parallel.h"
#include "nccl_comm/rank_threads.h"
#include "tests/support/catch.h"
#include "tests/support/device_training.h"
#include "tests/tools/program.h"
#include "tools/evaluation.h"

namespace heddle::test {
namespace {

// What must not depend on ranks and threads.
struct Result {
  std::vector<float> weights;
  std::vector<double> losses;  // sums of each epoch, of training and test images
  std::vector<std::int64_t> correct;
  friend bool operator==(const Result&, const Result&) = default;
};

// Rank 0's, of two epochs.
Result train(const tools::Settings& settings, const datasets::ImageDatasetPair& data, int ranks, int threads) {
  Result result;
  const auto run = [&](comm::Communicator* communicator) {
    const ThreadLimit limit(threads);
    Training training(settings, data, Device::cpu(), communicator);
    tools::Evaluator evaluator(*training.model, training.test, {}, true, communicator, training.trainer.micro_shards());
    for (int epoch = 0; epoch < 2; ++epoch) {
      training.train_epoch();
      training.trainer.finish_steps();
      const tools::Evaluation test = evaluator.run();
      const data::RunningMetrics train = training.trainer.sums().metrics;
      training.trainer.finish_epoch();
      if (communicator != nullptr && communicator->rank() != 0) continue;
      for (const data::RunningMetrics& metrics : {train, test.metrics}) {
        result.losses.push_back(metrics.loss_sum());
        result.correct.push_back(metrics.correct());
      }
      result.correct.push_back(test.confusion.count(1, 1));
    }
    if (communicator == nullptr || communicator->rank() == 0) result.weights = training.weights();
  };
  if (ranks == 1) {
    run(nullptr);
  } else {
    comm::run_rank_threads(ranks, {}, [&](comm::Communicator& communicator) { run(&communicator); });
  }
  return result;
}

std::vector<std::string> arguments(const std::string& folder, const std::string& run,
                                   const std::vector<std::string>& more) {
  std::vector<std::string> all{"--reproducible"};
  all.insert(all.end(), more.begin(), more.end());
  return small_training(folder, folder + "/" + run, all);
}

// Loss curve and weights of a whole run.
std::vector<std::string> outcome_of(const std::string& folder, const std::string& run,
                                    const std::vector<std::string>& more) {
  const ProcessResult result = heddle(arguments(folder, run, more));
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "shards   8 a batch"));
  std::vector<std::string> all = metrics_of(folder + "/" + run);
  all.push_back(weights_of(folder + "/" + run));
  return all;
}

}  // namespace

TEST_CASE("training and evaluation have the same bits for any number of ranks and threads") {
  // 601 test images: two batches, the second one ragged.
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 97, .n_test = 601});
  tools::Settings settings;
  settings.reproducible = true;
  settings.momentum = 0.9;
  settings.lr = 0.05;
  settings.augment = "crop-flip";
  for (const char* const model : {"lenet", "lenet-d2l"}) {
    settings.model = model;
    for (const std::int64_t batch_size : {16, 97}) {
      settings.batch_size = batch_size;
      const Result wanted = train(settings, data, 1, 1);
      for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const int threads : {1, 2, 3}) {
          // What two threads did to one rank they do to eight.
          if (ranks > 3 && threads > 1) continue;
          CAPTURE(model, batch_size, ranks, threads);
          const bool same = train(settings, data, ranks, threads) == wanted;
          CHECK(same);
        }
      }
    }
  }
}

TEST_CASE("an ordinary training does not have the same bits, which is why there is another kind") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 97, .n_test = 20});
  tools::Settings settings;
  settings.batch_size = 16;
  const bool differs = train(settings, data, 2, 1).weights != train(settings, data, 4, 1).weights;
  CHECK(differs);
}

TEST_CASE("a reproducible run writes the same loss curve and weights for any number of ranks and threads") {
  struct Row {
    int images;
    std::vector<std::string> more;
  };
  const Row rows[] = {
      {97, {"--batch-size", "16", "--optimizer", "adam", "--clip-grad-norm", "0.5", "--augment", "crop-flip"}},
      {11, {"--batch-size", "2", "--momentum", "0.9", "--label-smoothing", "0.1"}}};
  for (const Row& row : rows) {
    const TempFolder folder;
    write_small_dataset(folder.path(), row.images, 101);
    std::vector<std::string> wanted;
    for (const auto& [ranks, threads] :
         {std::pair{"1", "1"}, {"1", "3"}, {"2", "1"}, {"2", "2"}, {"3", "2"}, {"4", "1"}, {"5", "3"}, {"8", "1"}}) {
      std::vector<std::string> more{"--ranks", ranks, "--threads", threads, "--epochs", "2"};
      more.insert(more.end(), row.more.begin(), row.more.end());
      const std::vector<std::string> outcome =
          outcome_of(folder.path(), std::string("run-") + ranks + "-" + threads, more);
      CAPTURE(row.images, ranks, threads);
      if (wanted.empty()) wanted = outcome;
      CHECK(outcome == wanted);
    }
  }
}

TEST_CASE("a reproducible run that was interrupted goes on with other ranks and threads to the same end") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 400, 100);
  const std::vector<std::string> more{"--epochs",   "60",     "--momentum", "0.9",
                                      "--schedule", "cosine", "--augment",  "flip"};
  const std::vector<std::string> wanted = outcome_of(folder.path(), "whole", more);
  for (const auto& [first_ranks, ranks, threads] : {std::array{"2", "3", "2"}, {"1", "8", "1"}, {"3", "1", "3"}}) {
    const std::string run = std::string("parts-") + first_ranks;
    std::vector<std::string> with_ranks = more;
    with_ranks.insert(with_ranks.end(), {"--ranks", first_ranks});
    ProcessOptions options;
    options.arguments = arguments(folder.path(), run, with_ranks);
    Process process(heddle_path(), options);
    REQUIRE(process.wait_for_output("epoch 1/60"));
    process.send_signal(SIGTERM);
    const ProcessResult first = process.wait();
    INFO(first.out << first.err);
    REQUIRE(first.exit_code == 143);
    const ProcessResult rest = heddle({"train", "--resume", folder / run, "--ranks", ranks, "--threads", threads});
    INFO(rest.out << rest.err);
    REQUIRE(rest.exit_code == 0);
    std::vector<std::string> outcome = metrics_of(folder / run);
    outcome.push_back(weights_of(folder / run));
    CHECK(outcome == wanted);
    CHECK(json_file(folder / run + "/run.json")["settings"]["reproducible"] == true);
  }
}

TEST_CASE("a run stays reproducible, or not, when it is resumed") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 97, 20);
  outcome_of(folder.path(), "run", {"--epochs", "1"});
  const ProcessResult result = heddle({"train", "--resume", folder / "run", "--no-reproducible", "--epochs", "2"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "--reproducible false (the run has true)"));
  const ProcessResult pieces = heddle({"train", "--resume", folder / "run", "--accumulate", "2", "--epochs", "2"});
  CHECK(pieces.exit_code == 2);
  CHECK(contains(pieces.err, "--reproducible does not go with --accumulate 2"));
  const ProcessResult both = heddle({"train", "--dataset", "synthetic", "--reproducible", "--sync-bn"});
  CHECK(both.exit_code == 2);
  CHECK(contains(both.err, "--reproducible does not go with --sync-bn"));
}

}  // namespace heddle::test
