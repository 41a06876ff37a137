// The trainer on a device that records its steps, on the simulated CUDA: the plan of a step, and results like the
// CPU's.
#include <cmath>

#include "datasets/synthetic.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"
#include "tests/support/device_training.h"
#include "tests/support/relative_distance.h"
#include "tools/evaluation.h"

namespace heddle::test {
namespace {

const Device kGpu = Device::cuda(0);

}  // namespace

TEST_CASE("a step of LeNet is one graph of at most 23 kernels, with no wait, copy or allocation") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 200, .n_test = 16});
  tools::Settings settings;
  settings.batch_size = 16;
  settings.steps_per_launch = 1;
  settings.ema = 0.99;  // costs no kernel
  Training training(settings, data, kGpu);
  training.trainer.start_epoch();
  // The first step is called, the second one recorded.
  for (int i = 0; i < 2; ++i) REQUIRE(training.trainer.advance());
  training.trainer.finish_steps();
  cudasim::reset_counters();
  int steps = 0;
  for (; steps < 6; ++steps) REQUIRE(training.trainer.advance());
  training.trainer.finish_steps();
  const cudasim::Counters used = cudasim::counters();
  CHECK(used.graph_launches == steps);
  CHECK(used.kernels + used.library_calls <= 23 * steps);
  CHECK(used.host_waits == 0);
  CHECK(used.allocations + used.frees == 0);
  CHECK(used.copies_host_to_device + used.copies_device_to_host + used.copies_device_to_device == 0);
  CHECK(used.fills == 0);
  CHECK(used.host_functions == 0);
  CHECK(training.trainer.state().step == 8);
}

TEST_CASE("steps on a GPU are those of the CPU, however they are launched") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 90, .n_test = 20});
  tools::Settings settings;
  settings.batch_size = 20;
  settings.momentum = 0.9;
  settings.schedule = "cosine";
  settings.augment = "crop-flip";
  settings.ema = 0.9;
  settings.epochs = 2;
  const auto averages = [](Training& training) { return training.trainer.optimizer().averages().to_vector<float>(); };
  Training cpu(settings, data, Device::cpu());
  std::vector<float> eager, eager_averages;
  for (const auto& [graph, steps_per_launch] : {std::pair{false, 1}, {true, 1}, {true, 3}, {true, 0}}) {
    settings.graph = graph;
    settings.steps_per_launch = steps_per_launch;
    Training gpu(settings, data, kGpu);
    for (int epoch = 0; epoch < 2; ++epoch) {
      if (eager.empty()) cpu.train_epoch();
      gpu.train_epoch();
      if (!eager.empty()) {
        gpu.trainer.finish_epoch();
        continue;
      }
      CHECK(testing::relative_distance(gpu.weights(), cpu.weights()) < 1e-4);
      CHECK(testing::relative_distance(averages(gpu), averages(cpu)) < 1e-4);
      const data::RunningMetrics& mine = gpu.trainer.sums().metrics;
      CHECK(mine.samples() == 90);
      CHECK(mine.loss() == Approx(cpu.trainer.sums().metrics.loss()).epsilon(1e-4));
      CHECK(gpu.trainer.learning_rate() == cpu.trainer.learning_rate());
      const tools::Evaluation on_gpu = tools::evaluate(*gpu.model, gpu.test, {});
      const tools::Evaluation on_cpu = tools::evaluate(*cpu.model, cpu.test, {});
      CHECK(on_gpu.confusion.total() == 20);
      CHECK(on_gpu.metrics.loss() == Approx(on_cpu.metrics.loss()).epsilon(1e-3));
      gpu.trainer.finish_epoch();
      cpu.trainer.finish_epoch();
    }
    // Recorded or not, the kernels are the same, and so are the bits.
    if (eager.empty()) {
      eager = gpu.weights();
      eager_averages = averages(gpu);
    } else {
      CHECK(gpu.weights() == eager);
      CHECK(averages(gpu) == eager_averages);
    }
  }
}

TEST_CASE("a gradient that is not finite halts a GPU before the host knows, and the weights stay finite") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 800, .n_test = 16});
  tools::Settings settings;
  settings.batch_size = 8;
  settings.lr = 1e30;
  Training training(settings, data, kGpu);
  training.trainer.start_epoch();
  int launches = 0;
  const auto train = [&] {
    for (; launches < 100; ++launches) training.trainer.advance();
  };
  CHECK_THROWS_AS(train(), tools::NonFiniteLoss);
  CHECK(launches <= 10);
  for (const float weight : training.trainer.optimizer().parameters().data().to_vector<float>()) {
    REQUIRE(std::isfinite(weight));
  }
}

}  // namespace heddle::test
