// A whole training loop on a learnable set: it learns, it repeats bit for bit, and it asks the device for nothing once
// it runs.
#include <map>
#include <utility>

#include "engine/autograd/backward.h"
#include "engine/backend/kernel_choice.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/data/data_loader.h"
#include "engine/data/metrics.h"
#include "engine/device/caching_allocator.h"
#include "engine/device/device_runtime.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "models/model_list.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

using namespace heddle;

namespace {

// 28x28 images of class c: a bright bar at a place that belongs to c, shifted by up to two pixels, over noise.
data::ResidentDataset make_bars(std::int64_t count) {
  Philox random(5);
  std::vector<std::uint8_t> images, labels;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::uint32_t>(i % 10);
    const std::uint32_t top = 2 + 2 * label + random.below(2), left = random.below(3);
    for (std::uint32_t row = 0; row < 28; ++row) {
      for (std::uint32_t column = 0; column < 28; ++column) {
        const bool bar = row >= top && row < top + 4 && column >= left + 4 && column < left + 22;
        images.push_back(static_cast<std::uint8_t>((bar ? 140 : 0) + random.below(100)));
      }
    }
    labels.push_back(static_cast<std::uint8_t>(label));
  }
  return {images, labels, 28, 28, 1, 10, Device::cpu()};
}

class Run {
 public:
  explicit Run(const std::string& model_name, const data::ResidentDataset& dataset, std::uint64_t seed = 7)
      : model(draw(model_name, seed)), loader(dataset, {.batch_size = 64, .seed = seed}) {}

  // One batch; returns its mean loss.
  double step() {
    auto batch = loader.next();
    if (!batch) {
      loader.start_epoch(++epoch);
      batch = loader.next();
    }
    last_batch = batch->images.dim(0);
    sgd.zero_grad();
    backward(ops::cross_entropy(model->forward(batch->images), batch->labels,
                                {.reduction = ops::Reduction::sum, .stats = buffer.tail()}));
    sgd.step({.divide_by_weight_sum = true});
    data::RunningMetrics metrics;
    metrics.add(buffer.tail().read());
    return metrics.loss();
  }

  void save(const std::string& path) {
    const std::int64_t batch = (loader.position() + 63) / 64;
    checkpoint::save_checkpoint(path, *model, &sgd, {.epoch = epoch, .batch = batch, .step = sgd.step_count()});
  }
  void resume(const std::string& path) {
    const checkpoint::TrainingState state = checkpoint::load_checkpoint(path, *model, &sgd);
    epoch = state.epoch;
    loader.start_epoch(epoch);
    loader.skip(state.batch);
  }

  std::shared_ptr<nn::Module> model;
  nn::ParameterBuffer buffer{*model};
  optim::Sgd sgd{buffer, 0.05, SgdParams{.momentum = 0.9}};
  data::DataLoader loader;
  std::int64_t epoch = 0;
  std::int64_t last_batch = 0;  // images of the last step

 private:
  static std::shared_ptr<nn::Module> draw(const std::string& name, std::uint64_t seed) {
    auto made = models::make_model(name, {});
    Philox random(seed);
    made->reset_parameters(random);
    return made;
  }
};

}  // namespace

TEST_CASE("both LeNets learn, and the same seed gives the same losses and weights bit for bit") {
  const data::ResidentDataset dataset = make_bars(640);
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    INFO(name);
    Run first(name, dataset), second(name, dataset), other(name, dataset, 8);
    std::vector<double> losses, again;
    for (int i = 0; i < 60; ++i) losses.push_back(first.step());
    for (int i = 0; i < 60; ++i) again.push_back(second.step());
    CHECK(losses.front() == Approx(2.3).epsilon(0.05));
    CHECK(losses.back() < 0.5);
    CHECK(losses == again);
    CHECK(first.buffer.data().to_vector<float>() == second.buffer.data().to_vector<float>());
    CHECK(other.step() != losses.front());
  }
}

TEST_CASE("both LeNets train to the same result on the library's kernels and on the own ones") {
  const data::ResidentDataset dataset = make_bars(640);
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    std::vector<std::vector<double>> losses;
    std::vector<std::vector<float>> weights;
    for (const KernelChoice choice : {KernelChoice::automatic, KernelChoice::vendor, KernelChoice::own}) {
      const KernelChoiceGuard guard(choice);
      Run run(name, dataset);
      losses.emplace_back();
      for (int i = 0; i < 20; ++i) losses.back().push_back(run.step());
      weights.push_back(run.buffer.data().to_vector<float>());
    }
    for (std::size_t other = 1; other < losses.size(); ++other) {
      INFO(name << ", choice " << other);
      // The sums are rounded differently, so this fails if both ran on the same kernels.
      CHECK(weights[other] != weights[3 - other]);
      for (std::size_t i = 0; i < losses[0].size(); ++i) {
        CHECK(losses[other][i] == Approx(losses[0][i]).epsilon(0.01));
      }
      double difference = 0, norm = 0;
      for (std::size_t i = 0; i < weights[0].size(); ++i) {
        const double a = static_cast<double>(weights[0][i]), b = static_cast<double>(weights[other][i]);
        difference += (a - b) * (a - b);
        norm += a * a;
      }
      CHECK(difference < 1e-4 * norm);
    }
  }
}

TEST_CASE(
    "from the second step of a shape on no memory is asked from the device and the high-water mark stays, the smaller "
    "last batch included") {
  const data::ResidentDataset dataset = make_bars(200);  // epochs of three batches of 64 and one of 8
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    INFO(name);
    CachingAllocator& allocator = allocator_for(Device::cpu());
    allocator.release_cached();
    Run run(name, dataset);
    allocator.reset_peaks();
    std::map<std::int64_t, std::size_t> shapes_at_last_step;  // of each shape: how many there were
    for (int step = 0; step < 20; ++step) {
      const std::int64_t shape = step % 4 == 3 ? 8 : 64;
      const bool new_shape = !shapes_at_last_step.contains(shape);
      INFO("step " << step);
      const AllocatorStats before = allocator.stats();
      run.step();
      const AllocatorStats after = allocator.stats();
      CHECK(run.last_batch == shape);
      CHECK(after.requests > before.requests);
      const std::size_t shapes_before = std::exchange(shapes_at_last_step[shape], shapes_at_last_step.size());
      if (new_shape) continue;
      CHECK(after.device_allocations == before.device_allocations);
      CHECK(after.reserved_nbytes == before.reserved_nbytes);
      CHECK(after.peak_reserved_nbytes == before.peak_reserved_nbytes);
      CHECK(after.in_use_nbytes == before.in_use_nbytes);
      // What the first step of another shape made to keep it adds to the blocks in use, in memory that was there.
      if (shapes_before == shapes_at_last_step.size()) CHECK(after.peak_in_use_nbytes == before.peak_in_use_nbytes);
    }
    CHECK(shapes_at_last_step.size() == 2);
  }
}

TEST_CASE("a run that stops and resumes, also inside an epoch, repeats the uninterrupted one bit for bit") {
  const data::ResidentDataset dataset = make_bars(200);
  const test::TempFolder folder;
  for (const int stop : {3, 4, 6}) {
    INFO("stop after " << stop);
    Run whole("lenet", dataset), stopped("lenet", dataset), resumed("lenet", dataset);
    Philox other_weights(99);
    resumed.model->reset_parameters(other_weights);
    std::vector<double> expected, losses;
    for (int i = 0; i < 12; ++i) expected.push_back(whole.step());
    for (int i = 0; i < stop; ++i) losses.push_back(stopped.step());
    stopped.save(folder / "run.safetensors");
    resumed.resume(folder / "run.safetensors");
    for (int i = stop; i < 12; ++i) losses.push_back(resumed.step());
    CHECK(losses == expected);
    CHECK(resumed.buffer.data().to_vector<float>() == whole.buffer.data().to_vector<float>());
    CHECK(resumed.sgd.step_count() == 12);
  }
}
