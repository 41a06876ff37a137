// `heddle train --accumulate K`: a step whose images are computed in K pieces is the step on all of them at once.
#include <vector>

#include "nccl_comm/rank_threads.h"
#include "tests/support/catch.h"
#include "tests/support/device_training.h"
#include "tests/support/devices.h"
#include "tests/support/planted_communicator.h"
#include "tests/support/relative_distance.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

struct Length {
  int steps;
  double tolerance;
};

struct Result {
  std::vector<float> weights;  // of rank 0
  int exchanges = 0;           // of gradients, on rank 0
};

Result train(const tools::Settings& settings, const datasets::ImageDatasetPair& data, Device device, int ranks,
             int steps) {
  Result result;
  const auto run = [&](comm::Communicator* communicator) {
    Training training(settings, data, device, communicator);
    for (int done = 0; done < steps;) {
      training.trainer.start_epoch();
      while (done < steps && training.trainer.advance()) ++done;
      training.trainer.finish_steps();
      training.trainer.finish_epoch();
    }
    if (communicator == nullptr || communicator->rank() == 0) result.weights = training.weights();
  };
  if (ranks == 1) {
    run(nullptr);
    return result;
  }
  comm::run_rank_threads(ranks, {}, [&](comm::Communicator& real) {
    testing::PlantedCommunicator counted(
        real, {.all_reduce = [&](comm::Communicator& c, Tensor& x, comm::ReduceOp op, std::string_view what) {
          if (c.rank() == 0 && what.starts_with("gradients")) ++result.exchanges;
          c.all_reduce(x, op, what);
        }});
    run(&counted);
  });
  return result;
}

}  // namespace

TEST_CASE("pieces of a batch give the weights of the whole batch, and are exchanged once a step") {
  // 97 images: the last batch and the pieces are ragged.
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 97, .n_test = 10});
  for (const Device device : testing::test_devices()) {
    for (const std::int64_t batch_size : {16, 97}) {
      if (!device.is_cpu() && batch_size != 16) continue;
      tools::Settings settings;
      settings.batch_size = batch_size;
      settings.momentum = 0.9;
      settings.lr = 0.05;
      settings.augment = "flip";
      settings.steps_per_launch = 1;
      // The batch's size chooses the kernels. Their rounding grows with the steps, and may tip a ReLU.
      const std::vector<Length> lengths =
          device.is_cpu() ? std::vector<Length>{{3, 1e-5}, {20, 1e-3}} : std::vector<Length>{{4, 1e-5}};
      for (const Length& length : lengths) {
        settings.accumulate = 1;
        const Result whole = train(settings, data, device, 1, length.steps);
        for (const int ranks : {1, 3}) {
          for (const std::int64_t pieces : {2, 5, 16}) {
            if (!device.is_cpu() && pieces != 5) continue;
            CAPTURE(device.to_string(), batch_size, ranks, pieces, length.steps);
            settings.accumulate = pieces;
            const Result result = train(settings, data, device, ranks, length.steps);
            CHECK(testing::relative_distance(result.weights, whole.weights) < length.tolerance);
            if (ranks > 1) CHECK(result.exchanges == length.steps);
          }
        }
      }
    }
  }
}

TEST_CASE("pieces are added up before they are rounded to bf16 for the exchange") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 97, .n_test = 10});
  tools::Settings settings;
  settings.batch_size = 16;
  settings.lr = 0.05;
  settings.steps_per_launch = 1;
  const Result exact = train(settings, data, Device::cpu(), 3, 3);
  settings.reduce_dtype = "bf16";
  const Result whole = train(settings, data, Device::cpu(), 3, 3);
  settings.accumulate = 5;
  const Result pieces = train(settings, data, Device::cpu(), 3, 3);
  CHECK(pieces.exchanges == 3);
  // One rounding of the sum, not one of each piece: as far from f32 as without pieces.
  const double distance = testing::relative_distance(whole.weights, exact.weights);
  CHECK(distance > 0);
  CHECK(testing::relative_distance(pieces.weights, exact.weights) < 1.5 * distance);
}

TEST_CASE("more pieces than images are refused") {
  const ProcessResult result = heddle({"train", "--dataset", "synthetic", "--accumulate", "17", "--batch-size", "16"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "--accumulate 17 is more than the images of --batch-size 16"));
}

}  // namespace heddle::test
