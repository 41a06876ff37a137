// Ranks that do not train one model stop a whole training as `heddle train` puts it together: before it begins (parity
// gate), or before the next checkpoint is written (drift monitor).
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "engine/core/parallel.h"
#include "nccl_comm/rank_threads.h"
#include "tests/support/catch.h"
#include "tests/support/planted_communicator.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/program.h"
#include "tools/command.h"
#include "tools/data_source.h"
#include "tools/training_job.h"

namespace heddle::test {
namespace {

using testing::PlantedCalls;

struct Outcome {
  int code = -1;      // of rank 0; -1 if it threw
  std::string error;  // what it threw
};

// A training with ranks inside this program, with planted calls made for each rank.
Outcome train(const TempFolder& folder, const std::string& run, std::vector<std::string> more,
              const std::function<PlantedCalls(int rank)>& plant) {
  std::vector<std::string> arguments = small_training(folder.path(), run, std::move(more));
  arguments.erase(arguments.begin());  // the subcommand
  tools::TrainOptions options = read_train_options(parse_arguments(tools::train_spec(), arguments));
  const tools::InterruptWatch interrupt;
  const tools::Runtime runtime = start_runtime(options.settings);
  const datasets::ImageDatasetPair data = load_data(options.settings);
  const tools::ModelDescription description = describe_model(options.settings, data.train);
  const tools::Json data_description = tools::data_to_json(data);
  const auto resident = [&](const datasets::ImageDataset& part) {
    return data::ResidentDataset(part.images, part.labels, part.height, part.width, part.channels, part.num_classes,
                                 runtime.device);
  };
  const data::ResidentDataset train_set = resident(data.train), test_set = resident(data.test);
  const auto ranks = static_cast<int>(options.settings.ranks);
  tools::StopAgreement stop(interrupt, ranks);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  tools::Console out(nowhere), err(nowhere);
  const tools::TrainingJob job{.options = options,
                               .resumes = false,
                               .runtime = runtime,
                               .device = runtime.device,
                               .description = description,
                               .data = data_description,
                               .train = train_set,
                               .test = test_set,
                               .interrupt = interrupt,
                               .stop = stop,
                               .out = out,
                               .err = err};
  Outcome outcome;
  try {
    comm::run_rank_threads(ranks, {}, [&](comm::Communicator& real) {
      testing::PlantedCommunicator communicator(real, plant(real.rank()));
      const int code = run_training_job(job, &communicator);
      if (real.rank() == 0) outcome.code = code;
    });
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  ::close(nowhere);
  set_num_threads(default_num_threads());
  return outcome;
}

// On rank 1 one bit of a weight changes in the exchange of gradients number `at` (from 1).
PlantedCalls flip_a_weight(int rank, int at) {
  if (rank != 1) return {};
  const auto weights = std::make_shared<Tensor>();
  const auto count = std::make_shared<int>(0);
  return {.all_reduce =
              [weights, count, at](comm::Communicator& real, Tensor& x, comm::ReduceOp op, std::string_view what) {
                if (what.starts_with("gradients") && ++*count == at) {
                  // In the last layer's bias, in the middle of the mantissa.
                  auto* const values = static_cast<unsigned char*>(weights->mutable_raw_data());
                  values[weights->nbytes() - 16 + 1] ^= 0x10;
                }
                real.all_reduce(x, op, what);
              },
          .broadcast =
              [weights](comm::Communicator& real, Tensor& x, int root, std::string_view what) {
                real.broadcast(x, root, what);
                if (what == "parameters") *weights = x;
              }};
}

std::size_t checkpoints_of(const std::string& run) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints")) {
    if (entry.path().filename().string().starts_with("step-")) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("a flipped bit of one weight on one rank stops the run before the next checkpoint") {
  const TempFolder folder;
  // 10 steps an epoch.
  write_small_dataset(folder.path(), 160, 20);
  const std::vector<std::string> settings = {"--ranks",    "3",   "--epochs",        "3", "--batch-size", "16",
                                             "--momentum", "0.9", "--no-parity-gate"};
  const auto flip = [](int rank) { return flip_a_weight(rank, 14); };
  // At the end of the second epoch.
  Outcome outcome = train(folder, folder / "epoch", settings, flip);
  INFO(outcome.error);
  CHECK(outcome.code == -1);
  CHECK(contains(outcome.error, "after step 20 (epoch 2): weights of '"));
  CHECK(contains(outcome.error, ".bias': rank 1 of 3 differs from the others; the last good checkpoint is "));
  CHECK(checkpoints_of(folder / "epoch") == 1);
  CHECK(metrics_of(folder / "epoch").size() == 1);
  // Every four steps, but no sooner.
  std::vector<std::string> often = settings;
  often.insert(often.end(), {"--check-replicas", "4"});
  outcome = train(folder, folder / "steps", often, flip);
  INFO(outcome.error);
  CHECK(contains(outcome.error, "after step 16 (epoch 2): weights of '"));
  CHECK(checkpoints_of(folder / "steps") == 1);
  // What is not wrong is not stopped.
  outcome = train(folder, folder / "right", often, [](int) { return PlantedCalls{}; });
  CHECK(outcome.error == "");
  CHECK(outcome.code == 0);
}

TEST_CASE("a wrong exchange stops the run at the parity gate, before there is a folder") {
  const TempFolder folder;
  write_small_dataset(folder.path(), 160, 20);
  // The mean of the ranks, which would be divided once more; the tail remains a sum.
  const auto halve = [](int) {
    return PlantedCalls{
        .all_reduce = [](comm::Communicator& real, Tensor& x, comm::ReduceOp op, std::string_view what) {
          real.all_reduce(x, op, what);
          if (!what.starts_with("gradients")) return;
          float* const values = x.mutable_host_data<float>();
          for (std::int64_t i = 0; i < x.numel() - tail_slot::kCount; ++i) values[i] *= 0.5f;
        }};
  };
  const std::vector<std::string> settings = {"--ranks", "2", "--epochs", "1", "--batch-size", "16"};
  Outcome outcome = train(folder, folder / "gate", settings, halve);
  INFO(outcome.error);
  CHECK(outcome.code == -1);
  CHECK(contains(outcome.error, "parity gate, batch of 16 images on 2 ranks: the gradient of '"));
  CHECK(contains(outcome.error, "the difference is 0.5 of that"));
  CHECK(!file_exists(folder / "gate"));
  std::vector<std::string> skipping = settings;
  skipping.emplace_back("--no-parity-gate");
  outcome = train(folder, folder / "none", skipping, halve);
  CHECK(outcome.error == "");
  CHECK(outcome.code == 0);
}

}  // namespace heddle::test
