// The plan of a training step of the ResNets at full size, 256 images of 28x28 pixels: kernels, launches and bytes on
// the simulated CUDA, which computes nothing here.
#include <cstdint>
#include <string>

#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"
#include "tests/support/device_training.h"
#include "tests/support/launch_list.h"

namespace heddle::test {
namespace {

constexpr std::int64_t kBatch = 256;

// What trains without computing, while it lives. Nobody may wait for a step: its record is never written.
struct PlanOnly {
  PlanOnly() { cudasim::set_computing(false); }
  // Nothing may be left that would compute.
  ~PlanOnly() {
    cudaDeviceSynchronize();
    cudasim::set_computing(true);
  }
  PlanOnly(const PlanOnly&) = delete;
  PlanOnly& operator=(const PlanOnly&) = delete;
};

tools::Settings settings_for(const std::string& model, bool graph) {
  tools::Settings settings;
  settings.model = model;
  settings.batch_size = kBatch;
  settings.momentum = 0.9;
  settings.weight_decay = 5e-4;
  settings.nesterov = true;
  settings.graph = graph;
  settings.steps_per_launch = 1;
  return settings;
}

const datasets::ImageDatasetPair& images() {
  static const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 8 * kBatch, .n_test = 16});
  return data;
}

cudasim::Counters counters_of_recorded_steps(const tools::Settings& settings, int steps) {
  Training training(settings, images(), Device::cuda(0));
  const PlanOnly plan_only;
  training.trainer.start_epoch();
  // The first step is called, the second one recorded.
  for (int i = 0; i < 2; ++i) REQUIRE(training.trainer.advance());
  cudasim::reset_counters();
  for (int i = 0; i < steps; ++i) REQUIRE(training.trainer.advance());
  return cudasim::counters();
}

// The bytes of a plan in which each kernel touches each of its tensors once, in fp32. Masks of ReLUs are bits.
class PlannedBytes {
 public:
  explicit PlannedBytes(bool small_stem) {
    bytes_ += kBatch * 28 * 28 * (1 + kF32);
    std::int64_t size = small_stem ? conv(1, 64, 3, 1, 28, Input::images) : conv(1, 64, 7, 2, 28, Input::images);
    if (small_stem) {
      norm(64, size, true, false);
    } else {
      norm(64, size, false, false);
      // Pooling with the ReLU, a byte for the winner, each way.
      const std::int64_t in = kBatch * 64 * size * size;
      size = (size - 1) / 2 + 1;
      const std::int64_t out = kBatch * 64 * size * size;
      bytes_ += 2 * ((in + out) * kF32 + out);
    }
    std::int64_t channels = 64;
    for (int stage = 0; stage < 4; ++stage) {
      for (int block = 0; block < 2; ++block) {
        // The input is forked: of its two gradients the one that comes last is added to the other.
        const std::int64_t outputs = std::int64_t{64} << stage, in_size = size;
        const bool shortcut = stage > 0 && block == 0;
        if (shortcut) conv(channels, outputs, 1, 2, in_size, Input::forked);
        size = conv(channels, outputs, 3, shortcut ? 2 : 1, in_size, shortcut ? Input::plain : Input::forked);
        norm(outputs, size, true, false);
        conv(outputs, outputs, 3, 1, size, Input::plain);
        norm(outputs, size, true, true);
        channels = outputs;
      }
    }
    constexpr std::int64_t kClasses = 10;
    const std::int64_t pooled = kBatch * channels, logits = kBatch * kClasses, weights = channels * kClasses;
    bytes_ += 2 * (pooled * size * size + pooled) * kF32;  // the mean over the map
    bytes_ += 3 * (pooled + weights + logits) * kF32;
    bytes_ += 3 * logits * kF32;  // cross-entropy with its gradient
    parameters_ += weights + kClasses;
    bytes_ += 5 * parameters_ * kF32;  // with momentum
  }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t parameters() const { return parameters_; }

 private:
  static constexpr std::int64_t kF32 = 4;
  enum class Input { images, plain, forked };  // images: no gradient of the input

  std::int64_t conv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, std::int64_t stride,
                    std::int64_t size, Input input) {
    const std::int64_t out_size = (size + 2 * (kernel_size / 2) - kernel_size) / stride + 1;
    const std::int64_t x = kBatch * in_channels * size * size, y = kBatch * out_channels * out_size * out_size;
    const std::int64_t weights = in_channels * out_channels * kernel_size * kernel_size;
    bytes_ += (x + y + weights) * kF32 * (input == Input::images ? 2 : 3);
    if (input == Input::forked) bytes_ += x * kF32;
    parameters_ += weights + out_channels;
    return out_size;
  }
  void norm(std::int64_t channels, std::int64_t size, bool relu, bool add) {
    const std::int64_t numel = kBatch * channels * size * size;
    bytes_ += 5 * numel * kF32;
    if (relu) bytes_ += 2 * (numel / 8);
    if (add) bytes_ += 2 * numel * kF32;
    parameters_ += 2 * channels;
  }

  std::int64_t bytes_ = 0, parameters_ = 0;
};

}  // namespace

TEST_CASE("a step of ResNet-18 is one graph of 103 kernels at most, 101 with the small stem, and nothing else") {
  for (const auto& [model, most] : {std::pair{"resnet18", 103}, std::pair{"resnet18-cifar", 101}}) {
    constexpr int kSteps = 4;
    const cudasim::Counters used = counters_of_recorded_steps(settings_for(model, true), kSteps);
    INFO(model << ": " << used.kernels << " kernels and " << used.library_calls << " library calls in " << kSteps
               << " steps");
    CHECK(used.kernels + used.library_calls <= most * kSteps);
    CHECK(used.kernels + used.library_calls > 90 * kSteps);
    CHECK(used.graph_launches == kSteps);
    CHECK(used.host_waits == 0);
    CHECK(used.allocations + used.frees == 0);
    CHECK(used.copies_host_to_device + used.copies_device_to_host + used.copies_device_to_device == 0);
    CHECK(used.fills == 0);
    CHECK(used.host_functions == 0);
  }
}

TEST_CASE("clipping and averages of weights cost a step of ResNet-18 two kernels and none") {
  tools::Settings settings = settings_for("resnet18-cifar", true);
  const auto kernels = [&] {
    const cudasim::Counters used = counters_of_recorded_steps(settings, 1);
    return used.kernels + used.library_calls;
  };
  const std::int64_t plain = kernels();
  settings.ema = 0.999;
  CHECK(kernels() == plain);
  settings.clip_grad_norm = 1;
  CHECK(kernels() <= plain + 2);
}

TEST_CASE("a step of ResNet-18 moves at most a tenth more bytes than its fused plan") {
  for (const bool small_stem : {false, true}) {
    const PlannedBytes planned(small_stem);
    // Worked out by hand: 11.2 million parameters.
    CHECK(planned.parameters() == (small_stem ? 11'175'818 : 11'178'378));
    Training training(settings_for(small_stem ? "resnet18-cifar" : "resnet18", false), images(), Device::cuda(0));
    const PlanOnly plan_only;
    training.trainer.start_epoch();
    REQUIRE(training.trainer.advance());
    testing::start_launch_list();
    REQUIRE(training.trainer.advance());
    std::int64_t moved = 0;
    std::string table;
    for (const testing::Launch& launch : testing::end_launch_list()) {
      moved += launch.read_nbytes + launch.written_nbytes;
      table += launch.name + ": reads " + std::to_string(launch.read_nbytes) + ", writes " +
               std::to_string(launch.written_nbytes) + "\n";
    }
    INFO("planned " << planned.bytes() << ", moved " << moved << "\n" << table);
    CHECK(static_cast<double>(moved) <= 1.1 * static_cast<double>(planned.bytes()));
    CHECK(moved >= planned.bytes() / 2);
  }
}

}  // namespace heddle::test
