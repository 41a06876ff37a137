// What a training asks of the device's memory: after the first step of a shape nothing, and never much more than the
// largest batch needs.
#include <utility>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/device/caching_allocator.h"
#include "engine/nn/parameter_buffer.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "models/model_list.h"
#include "tests/support/catch.h"

using namespace heddle;

namespace {

CachingAllocator& allocator() { return allocator_for(Device::cpu()); }

class Run {
 public:
  explicit Run(const std::string& name) : model_(models::make_model(name, {})) {
    Philox random(7);
    model_->reset_parameters(random);
  }

  // One update from a batch of black images of class 0.
  void step(std::int64_t batch_size) { step(Tensor::zeros({batch_size, 28, 28, 1})); }
  void step(const Tensor& images) {
    const Tensor labels = Tensor::zeros({images.shape()[0]}, DType::i64);
    sgd_.zero_grad();
    backward(ops::cross_entropy(model_->forward(images), labels,
                                {.reduction = ops::Reduction::sum, .stats = buffer_.tail()}));
    sgd_.step({.divide_by_weight_sum = true});
  }
  std::vector<float> weights() { return buffer_.data().to_vector<float>(); }

 private:
  std::shared_ptr<nn::Module> model_;
  nn::ParameterBuffer buffer_{*model_};
  optim::Sgd sgd_{buffer_, 0.05, SgdParams{.momentum = 0.9}};
};

}  // namespace

TEST_CASE("the second step of any batch size asks for no memory, and the high-water mark stays") {
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    for (const std::int64_t batch_size : {1, 2, 3, 7, 16, 31, 48, 64, 100, 128, 150, 200, 256, 300, 512}) {
      INFO(name << ", batch size " << batch_size);
      allocator().release_cached();
      allocator().reset_peaks();
      Run run(name);
      run.step(batch_size);
      const AllocatorStats first = allocator().stats();
      run.step(batch_size);
      const AllocatorStats second = allocator().stats();
      run.step(batch_size);
      const AllocatorStats third = allocator().stats();
      CHECK(second.device_allocations == first.device_allocations);
      CHECK(third.device_allocations == first.device_allocations);
      CHECK(third.reserved_nbytes == first.reserved_nbytes);
      CHECK(third.peak_reserved_nbytes == first.peak_reserved_nbytes);
      CHECK(third.peak_in_use_nbytes == second.peak_in_use_nbytes);
      CHECK(third.in_use_nbytes == first.in_use_nbytes);
      if (batch_size <= 256) CHECK(third.reserved_nbytes <= std::size_t{40} * 1000 * 1000);
    }
  }
}

TEST_CASE("two batch sizes in turn ask for no memory once each was there") {
  const std::vector<std::pair<std::int64_t, std::int64_t>> pairs = {{64, 8},    {256, 96}, {256, 255},
                                                                    {256, 128}, {100, 99}, {128, 30}};
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    for (const auto& [large, small] : pairs) {
      for (const bool small_first : {false, true}) {
        INFO(name << ", batch sizes " << large << " and " << small << (small_first ? ", the smaller first" : ""));
        allocator().release_cached();
        Run run(name);
        run.step(small_first ? small : large);
        run.step(small_first ? large : small);
        const std::uint64_t asked = allocator().stats().device_allocations;
        for (int i = 0; i < 2; ++i) {
          run.step(large);
          run.step(small);
        }
        CHECK(allocator().stats().device_allocations == asked);
      }
    }
  }
}

TEST_CASE("batch sizes at random need at most 1.3 times the memory of the largest alone") {
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    INFO(name);
    allocator().release_cached();
    std::size_t alone = 0;
    {
      Run run(name);
      for (int i = 0; i < 2; ++i) run.step(256);
      alone = allocator().stats().reserved_nbytes;
    }
    allocator().release_cached();
    Run run(name);
    allocator().reset_peaks();
    Philox random(3);
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 30; ++i) run.step(1 + random.below(256));
      run.step(256);
    }
    CHECK(static_cast<double>(allocator().stats().peak_reserved_nbytes) <= 1.3 * static_cast<double>(alone));
  }
}

TEST_CASE("after a batch that finds too little memory the next smaller one gives the numbers of a fresh training") {
  Philox random(5);
  std::vector<float> pixels(64 * 28 * 28);
  for (float& pixel : pixels) pixel = static_cast<float>(random.below(256)) / 255;
  const Tensor images = Tensor::from_values(pixels, {64, 28, 28, 1});
  for (const std::string name : {"lenet", "lenet-d2l"}) {
    INFO(name);
    Run fresh(name);
    fresh.step(images);
    const std::vector<float> wanted = fresh.weights();
    Run run(name);
    allocator().release_cached();
    const Tensor large = Tensor::zeros({4096, 28, 28, 1});
    // For LeNet enough for some of the layers, so that the batch fails in its middle.
    allocator().set_limit(allocator().stats().reserved_nbytes + (std::size_t{20} << 20));
    std::string error;
    try {
      run.step(large);
    } catch (const OutOfMemory& out_of_memory) {
      error = out_of_memory.what();
    }
    allocator().set_limit(0);
    CHECK_THAT(error, Catch::Contains("out of memory on cpu") && Catch::Contains("asked for"));
    run.step(images);
    // Not the two lists: they are long.
    const bool same = run.weights() == wanted;
    CHECK(same);
  }
}
