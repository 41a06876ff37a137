// The caching allocator on a device with streams, and as one of several of a device.
#include <algorithm>
#include <memory>

#include "engine/device/caching_allocator.h"
#include "engine/tensor/tensor.h"
#include "tests/support/catch.h"
#include "tests/support/fake_device.h"

using namespace heddle;
using heddle::testing::FakeDevice;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A registered device of 64 MiB; one for all tests of the program, since devices stay.
FakeDevice& fake() {
  static FakeDevice* const device = [] {
    auto made = std::make_unique<FakeDevice>(40, 64 * kMiB);
    FakeDevice* const raw = made.get();
    register_device(std::move(made));
    return raw;
  }();
  return *device;
}

}  // namespace

TEST_CASE("a block is used again on its own stream only") {
  CachingAllocator allocator(fake());
  const Stream first = fake().stream(1), second = fake().stream(2);
  void* block = nullptr;
  {
    const StreamGuard guard(first);
    block = allocator.allocate(1000);
    allocator.deallocate(block);
  }
  {
    const StreamGuard guard(second);
    void* const other = allocator.allocate(1000);
    CHECK(other != block);
    allocator.deallocate(other);
  }
  const StreamGuard guard(first);
  void* const again = allocator.allocate(1000);
  CHECK(again == block);
  // Freed while another stream is current, it still goes back to its own.
  {
    const StreamGuard inner(second);
    allocator.deallocate(again);
    void* const other = allocator.allocate(1000);
    CHECK(other != again);
    allocator.deallocate(other);
  }
  CHECK(allocator.stats().device_allocations == 2);
  CHECK(allocator.stats().in_use_nbytes == 0);
}

TEST_CASE("when memory runs out the cached blocks of all streams are freed after their streams are done") {
  CachingAllocator allocator(fake());
  const Stream first = fake().stream(1), second = fake().stream(2);
  {
    const StreamGuard guard(first);
    allocator.deallocate(allocator.allocate(30 * kMiB));
  }
  const StreamGuard guard(second);
  allocator.deallocate(allocator.allocate(20 * kMiB));
  fake().waited().clear();
  void* const large = allocator.allocate(60 * kMiB);
  CHECK(large != nullptr);
  CHECK(fake().used_nbytes() == 60 * kMiB);
  for (const Stream stream : {first, second}) {
    CHECK(std::count(fake().waited().begin(), fake().waited().end(), stream) == 1);
  }

  SECTION("and if that is not enough the error says what there is") {
    try {
      allocator.allocate(8 * kMiB);
      FAIL("there was memory");
    } catch (const OutOfMemory& error) {
      const std::string text = error.what();
      INFO(text);
      CHECK(error.requested_nbytes() == 8 * kMiB);
      for (const char* part : {"cuda:40", "asked for 8388608 bytes", "62914560 in use by tensors", "0 cached",
                               "4194304 free of 67108864", "a smaller batch size"}) {
        CHECK(text.find(part) != std::string::npos);
      }
    }
  }
  allocator.deallocate(large);
  void* const small = allocator.allocate(8 * kMiB);
  CHECK(small != nullptr);
  allocator.deallocate(small);
}

TEST_CASE("a thread can take a device's tensors from another allocator, whose tensors keep it alive") {
  const Device device = fake().device();
  CachingAllocator& usual = allocator_for(device);
  const std::size_t in_use = usual.stats().in_use_nbytes;
  auto arena = std::make_shared<CachingAllocator>(fake());
  const std::weak_ptr<CachingAllocator> watched = arena;
  Tensor inside;
  {
    const AllocatorGuard guard(arena);
    CHECK(&allocator_for(device) == arena.get());
    CHECK(&allocator_for(Device::cpu()) != arena.get());
    inside = Tensor::empty({1000}, DType::f32, device);
    {
      const AllocatorGuard inner(std::make_shared<CachingAllocator>(fake()));
      CHECK(&allocator_for(device) != arena.get());
    }
    CHECK(&allocator_for(device) == arena.get());
  }
  CHECK(&allocator_for(device) == &usual);
  CHECK(usual.stats().in_use_nbytes == in_use);
  CHECK(arena->stats().in_use_nbytes >= 4000);
  arena.reset();
  CHECK(!watched.expired());
  const std::size_t used = fake().used_nbytes();
  inside = {};
  CHECK(watched.expired());
  CHECK(fake().used_nbytes() < used);
}

TEST_CASE("segments that must be kept are kept, and a relative gives up its cache first") {
  auto relative = std::make_shared<CachingAllocator>(fake());
  CachingAllocator allocator(fake(), relative);
  relative->deallocate(relative->allocate(40 * kMiB));
  allocator.set_keep_segments(true);
  void* const block = allocator.allocate(10 * kMiB);
  allocator.deallocate(block);
  allocator.release_cached();
  CHECK(allocator.stats().reserved_nbytes >= 10 * kMiB);
  void* const large = allocator.allocate(40 * kMiB);
  CHECK(relative->stats().reserved_nbytes == 0);
  void* const again = allocator.allocate(10 * kMiB);
  CHECK(again == block);
  allocator.deallocate(large);
  allocator.deallocate(again);
  CHECK_THROWS_AS(allocator.allocate(60 * kMiB), OutOfMemory);
  CHECK(allocator.stats().reserved_nbytes >= 50 * kMiB);
}

TEST_CASE("a repeated sequence of requests gets the same addresses, whatever it is") {
  CachingAllocator allocator(fake());
  const StreamGuard guard(fake().stream(1));
  std::uint64_t state = 1;
  const auto random = [&state](std::uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int pattern = 0; pattern < 20; ++pattern) {
    const std::uint64_t seed = state;
    std::vector<void*> first, second;
    std::uint64_t asked = 0;
    for (int pass = 0; pass < 2; ++pass) {
      state = seed;
      std::vector<void*> held;
      std::vector<void*>& addresses = pass == 0 ? first : second;
      for (int i = 0; i < 60; ++i) {
        if (!held.empty() && random(3) == 0) {
          const std::size_t k = random(held.size());
          allocator.deallocate(held[k]);
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(k));
        } else {
          held.push_back(allocator.allocate(1 + random(300 * 1024)));
          addresses.push_back(held.back());
        }
      }
      for (void* const block : held) allocator.deallocate(block);
      if (pass == 0) asked = allocator.stats().device_allocations;
    }
    CHECK(allocator.stats().device_allocations == asked);
    CHECK(allocator.stats().in_use_nbytes == 0);
  }
}
