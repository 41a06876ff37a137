// Lets the engine's models build all their cuDNN graphs on the simulated CUDA, at full size, and leaves them in the
// file of plans below $XDG_CACHE_HOME: a training step, one that accumulates gradients, and an evaluation. Nothing is
// computed, since graphs depend on shapes alone. For cudnn_graphs_test.py, which puts them to the real cuDNN.
//
// usage: record_graphs MODEL
#include <cstdio>
#include <exception>

#include "engine/autograd/node.h"
#include "engine/backend/kernel_choice.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/device_training.h"

namespace heddle::test {
namespace {

constexpr std::int64_t kBatch = 256;

void record(const char* model) {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 2 * kBatch, .n_test = kBatch});
  tools::Settings settings;
  settings.model = model;
  settings.graph = false;
  // All that the library could be asked for, also where own kernels are preferred.
  const KernelChoiceGuard vendor(KernelChoice::vendor);
  for (const std::int64_t pieces : {1, 2}) {
    settings.batch_size = pieces * kBatch;
    settings.accumulate = pieces;
    Training training(settings, data, Device::cuda(0));
    cudasim::set_computing(false);
    training.trainer.start_epoch();
    if (!training.trainer.advance()) throw Error("there is no batch");
    if (pieces > 1) continue;
    training.model->train(false);
    const NoGradGuard no_grad;
    const models::ModelOptions images;
    training.model->forward(
        Tensor::empty({kBatch, images.height, images.width, images.in_channels}, DType::f32, Device::cuda(0)));
  }
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::printf("usage: %s MODEL\n", argv[0]);
    return 2;
  }
  try {
    heddle::test::record(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
