#include "engine/device/caching_allocator.h"

#include <random>

#include "engine/tensor/tensor.h"
#include "tests/support/catch.h"

using namespace heddle;

TEST_CASE("a repeated pattern of sizes asks the device once") {
  CachingAllocator& allocator = allocator_for(Device::cpu());
  const auto pattern = [] {
    std::vector<Tensor> kept;
    for (std::int64_t n : {1000, 200000, 5, 70000, 3000000}) kept.push_back(Tensor::empty({n}));
  };
  pattern();
  const auto before = allocator.stats();
  for (int i = 0; i < 100; ++i) pattern();
  const auto after = allocator.stats();
  CHECK(after.device_allocations == before.device_allocations);
  CHECK(after.peak_reserved_nbytes == before.peak_reserved_nbytes);
  CHECK(after.requests == before.requests + 500);
}

TEST_CASE("too large a request names device, shape and bytes, and the next one succeeds") {
  CHECK_THROWS_AS(Tensor::empty({std::int64_t{1} << 58}), OutOfMemory);
  CHECK_THROWS_WITH(Tensor::empty({std::int64_t{1} << 58}),
                    Catch::Contains("cpu") && Catch::Contains("1152921504606846976"));
  CHECK(Tensor::zeros({4}).to_vector<float>() == std::vector<float>(4, 0.f));
}

TEST_CASE("random batch sizes keep the peak within 1.3 times the largest alone") {
  CachingAllocator& allocator = allocator_for(Device::cpu());
  const auto step = [](std::int64_t batch) {
    std::vector<Tensor> layers;
    for (std::int64_t width : {784, 3456, 864, 1024, 256, 120, 84, 10}) layers.push_back(Tensor::empty({batch, width}));
    for (auto it = layers.rbegin(); it != layers.rend(); ++it) *it = Tensor::empty({batch, 784});
  };
  allocator.release_cached();
  allocator.reset_peaks();
  const auto base = allocator.stats().reserved_nbytes;
  step(4096);
  const auto alone = allocator.stats().peak_reserved_nbytes - base;
  allocator.release_cached();
  allocator.reset_peaks();
  std::mt19937 random(7);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 256; ++i) step(16 * (1 + static_cast<std::int64_t>(random() % 256)));
  }
  CHECK(static_cast<double>(allocator.stats().peak_reserved_nbytes - base) <= 1.3 * static_cast<double>(alone));
}

TEST_CASE("a limit makes requests beyond it fail without harm") {
  CachingAllocator& allocator = allocator_for(Device::cpu());
  allocator.release_cached();
  allocator.set_limit(allocator.stats().reserved_nbytes + (std::size_t{8} << 20));
  CHECK_THROWS_AS(Tensor::empty({std::int64_t{16} << 20}), OutOfMemory);
  Tensor small = Tensor::empty({1000});
  CHECK(small.defined());
  allocator.set_limit(0);
}
