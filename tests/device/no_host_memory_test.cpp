// The caching allocator when the host has no memory for its bookkeeping. Own program: it replaces operator new.
#include <cstdlib>
#include <new>
#include <vector>

#include "engine/device/caching_allocator.h"
#include "tests/support/catch.h"
#include "tests/support/fake_device.h"

namespace {

// Allocations of this thread until one fails; negative: none fails.
thread_local int until_failure = -1;

void* allocate_or_fail(std::size_t nbytes) {
  if (until_failure == 0) throw std::bad_alloc();
  if (until_failure > 0) --until_failure;
  void* const data = std::malloc(nbytes == 0 ? 1 : nbytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t nbytes) { return allocate_or_fail(nbytes); }
void* operator new[](std::size_t nbytes) { return allocate_or_fail(nbytes); }
// The ones that return null too: a sanitizer would put its own in their place, whose memory is not free()'s.
void* operator new(std::size_t nbytes, const std::nothrow_t&) noexcept { return std::malloc(nbytes == 0 ? 1 : nbytes); }
void* operator new[](std::size_t nbytes, const std::nothrow_t&) noexcept {
  return std::malloc(nbytes == 0 ? 1 : nbytes);
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }

using namespace heddle;

TEST_CASE("a failed allocation of bookkeeping leaves the caching allocator consistent") {
  testing::FakeDevice device(39, std::size_t{64} << 20);
  int failures = 0;
  // Each round fails one allocation later, until none is left to fail.
  for (int nth = 0; nth < 200; ++nth) {
    CachingAllocator allocator(device);
    const StreamGuard guard(device.stream(1));
    void* const before = allocator.allocate(5000);
    void* const hole = allocator.allocate(3000);
    void* const after = allocator.allocate(7000);
    allocator.deallocate(hole);
    const AllocatorStats stats = allocator.stats();
    std::vector<void*> blocks;
    blocks.reserve(4);
    bool failed = false;
    until_failure = nth;
    try {
      blocks.push_back(allocator.allocate(1000));                  // splits the hole
      blocks.push_back(allocator.allocate(20000));                 // splits the rest of the segment
      blocks.push_back(allocator.allocate(std::size_t{9} << 20));  // a new segment
      const StreamGuard other(device.stream(2));
      blocks.push_back(allocator.allocate(1000));  // a new stream
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    until_failure = 0;  // giving back needs nothing
    for (void* const block : blocks) allocator.deallocate(block);
    until_failure = -1;
    failures += failed ? 1 : 0;
    CHECK(allocator.stats().in_use_nbytes == stats.in_use_nbytes);
    void* const again = allocator.allocate(3000);
    CHECK(again == hole);
    for (void* const block : {before, again, after}) allocator.deallocate(block);
    CHECK(allocator.stats().in_use_nbytes == 0);
    allocator.release_cached();
    CHECK(allocator.stats().reserved_nbytes == 0);
    CHECK(device.used_nbytes() == 0);
    if (!failed) break;
  }
  CHECK(failures > 5);
  CHECK(failures < 200);
}
