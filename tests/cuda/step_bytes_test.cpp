// The bytes that one training step moves on a GPU, as its kernels declare them (and the simulated CUDA holds them to
// it), beside those of a plan in which each kernel touches each of its tensors once.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/device_training.h"
#include "tests/support/launch_list.h"

namespace heddle::test {
namespace {

// A layer with its bias, of N images. Elements of the input and of the result before pooling are per image.
struct Layer {
  std::int64_t x = 0, y = 0;
  std::int64_t weights = 0, biases = 0;
  bool pooled = false;  // a convolution with ReLU, then 2x2 pooling
};

Layer conv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, std::int64_t side) {
  const std::int64_t out = side - kernel_size + 1;
  return {.x = in_channels * side * side,
          .y = out_channels * out * out,
          .weights = out_channels * in_channels * kernel_size * kernel_size,
          .biases = out_channels,
          .pooled = true};
}
Layer linear(std::int64_t in_features, std::int64_t out_features) {
  return {.x = in_features, .y = out_features, .weights = in_features * out_features, .biases = out_features};
}

// Bytes of a step in fp32: gather; per layer its forward with bias and ReLU, pooling with a byte for the winner, the
// gradients of input and weights, after a convolution that of pooling, which meets ReLU's mask, and that of the bias;
// cross-entropy with its gradient; one pass of the optimiser.
std::int64_t planned_bytes(const std::vector<Layer>& layers, std::int64_t n) {
  constexpr std::int64_t f32 = 4;
  std::int64_t bytes = n * layers.front().x * (1 + f32);
  std::int64_t parameters = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    const std::int64_t product = (n * (layer.x + layer.y) + layer.weights) * f32;
    bytes += product * (i == 0 ? 2 : 3);
    if (layer.pooled) {
      const std::int64_t y = n * layer.y * f32;
      bytes += y + y / 4;      // pooling
      bytes += y + y / 4 + y;  // its gradient and the mask
      bytes += y;              // the gradient of the bias
    }
    parameters += layer.weights + layer.biases;
  }
  bytes += 3 * n * layers.back().y * f32;
  return bytes + 3 * parameters * f32;
}

struct Moved {
  std::int64_t bytes = 0;
  std::int64_t kernels = 0;
  std::string table;
};

// Of the second step of an epoch.
Moved bytes_of_a_step(const std::string& model, std::int64_t batch_size, double ema = 0.0) {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 3 * batch_size, .n_test = 16});
  tools::Settings settings;
  settings.model = model;
  settings.batch_size = batch_size;
  settings.graph = false;
  settings.ema = ema;
  Training training(settings, data, Device::cuda(0));
  training.trainer.start_epoch();
  REQUIRE(training.trainer.advance());
  testing::start_launch_list();
  REQUIRE(training.trainer.advance());
  Moved moved;
  for (const testing::Launch& launch : testing::end_launch_list()) {
    ++moved.kernels;
    moved.bytes += launch.read_nbytes + launch.written_nbytes;
    moved.table += launch.name + ": reads " + std::to_string(launch.read_nbytes) + ", writes " +
                   std::to_string(launch.written_nbytes) + "\n";
  }
  return moved;
}

}  // namespace

TEST_CASE("a step moves at most a tenth more bytes than its fused plan") {
  constexpr std::int64_t kBatch = 256;
  const std::vector<Layer> lenet = {conv(1, 6, 5, 28), conv(6, 16, 5, 12), linear(256, 120), linear(120, 84),
                                    linear(84, 10)};
  const std::vector<Layer> lenet_d2l = {conv(1, 20, 3, 28), conv(20, 50, 5, 13), linear(800, 128), linear(128, 10)};
  // The plan of the seed's LeNet by hand: 39 MB.
  CHECK(planned_bytes(lenet, kBatch) / 1'000'000 == 39);
  const auto check = [&](const std::string& model, const std::vector<Layer>& layers) {
    const Moved moved = bytes_of_a_step(model, kBatch);
    const std::int64_t planned = planned_bytes(layers, kBatch);
    INFO(model << ": planned " << planned << ", moved " << moved.bytes << "\n" << moved.table);
    CHECK(static_cast<double>(moved.bytes) <= 1.1 * static_cast<double>(planned));
  };
  check("lenet", lenet);
  check("lenet-d2l", lenet_d2l);
}

TEST_CASE("an average of the weights costs no kernel, and reads and writes itself once") {
  const Moved without = bytes_of_a_step("lenet", 16), with = bytes_of_a_step("lenet", 16, 0.99);
  INFO(without.table << "\n" << with.table);
  CHECK(with.kernels == without.kernels);
  // LeNet's parameters, each tensor filled up to a multiple of four.
  CHECK(with.bytes - without.bytes == 2 * 4 * 44432);
}

}  // namespace heddle::test
