// A training on one of several GPUs leaves the others alone, on the simulated CUDA.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/device/caching_allocator.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/catch.h"
#include "tests/support/device_training.h"

namespace heddle::test {
namespace {

std::size_t free_memory(int device) {
  int before = 0;
  std::size_t free = 0, total = 0;
  REQUIRE(cudaGetDevice(&before) == cudaSuccess);
  REQUIRE(cudaSetDevice(device) == cudaSuccess);
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  REQUIRE(cudaSetDevice(before) == cudaSuccess);
  return free;
}

}  // namespace

TEST_CASE("a training takes memory and time of the GPU that was chosen, and nothing of another") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 96, .n_test = 32});
  tools::Settings settings;
  settings.batch_size = 32;
  for (const int chosen : {1, 0}) {
    CAPTURE(chosen);
    // What earlier tests have left would serve a request that nobody sees.
    for (const int device : {0, 1}) allocator_for(Device::cuda(device)).release_cached();
    const std::size_t of_other = free_memory(1 - chosen), of_chosen = free_memory(chosen);
    cudasim::set_tracing(true);
    Training training(settings, data, Device::cuda(chosen));
    training.train_epoch();
    training.trainer.finish_steps();
    const std::vector<cudasim::OpRecord> operations = cudasim::trace();
    cudasim::set_tracing(false);
    CHECK(operations.size() > 30);
    CHECK(std::all_of(operations.begin(), operations.end(),
                      [&](const cudasim::OpRecord& operation) { return operation.device == chosen; }));
    CHECK(free_memory(1 - chosen) == of_other);
    CHECK(free_memory(chosen) < of_chosen);
  }
}

}  // namespace heddle::test
