// Serves tensor memory of one device from segments that it keeps, so that a training step that repeats its sizes asks
// the device for nothing. Used by Tensor; knows only DeviceRuntime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "device_runtime.h"

namespace heddle {

// All byte counts include the rounding of requests to kAlignment.
struct AllocatorStats {
  std::uint64_t requests = 0;            // blocks handed out so far
  std::uint64_t device_allocations = 0;  // segments asked from the device so far
  std::size_t in_use_nbytes = 0;         // in blocks that are handed out now
  std::size_t reserved_nbytes = 0;       // in segments held now
  std::size_t peak_in_use_nbytes = 0;
  std::size_t peak_reserved_nbytes = 0;
};

// Best fit with splitting and merging inside segments. Thread-safe. Blocks must be given back before it is destroyed.
class CachingAllocator {
 public:
  static constexpr std::size_t kAlignment = 256;

  explicit CachingAllocator(DeviceRuntime& runtime);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // A block of at least nbytes (also for 0), aligned to kAlignment; contents are undefined.
  // When the device is out of memory the cached segments are freed and the request is tried again.
  // Throws: OutOfMemory with device, bytes asked, in use, free and total.
  void* allocate(std::size_t nbytes);
  void deallocate(void* block) noexcept;

  // Gives segments without a live block back to the device.
  void release_cached() noexcept;
  // Most bytes to reserve, 0 for no limit. Requests beyond it throw OutOfMemory.
  void set_limit(std::size_t nbytes);
  // Fills every block with 0xff bytes (NaN) when it is handed out; for tests.
  void set_poison(bool on);
  AllocatorStats stats() const;
  // Peaks restart from the present values.
  void reset_peaks();

 private:
  struct Block {
    std::size_t nbytes;
    std::uint64_t segment;
    bool free;
  };
  struct Segment {
    std::byte* begin;
    std::size_t nbytes;
  };
  using BlockMap = std::map<std::byte*, Block>;

  void* take(std::size_t nbytes);
  bool add_segment(std::size_t nbytes);
  void release_cached_locked() noexcept;
  std::size_t cached_segments_nbytes() const;
  [[noreturn]] void throw_out_of_memory(std::size_t nbytes) const;

  DeviceRuntime& runtime_;
  mutable std::mutex mutex_;
  BlockMap blocks_;                                           // by address, free and used
  std::set<std::pair<std::size_t, std::byte*>> free_blocks_;  // by size
  std::map<std::uint64_t, Segment> segments_;
  std::uint64_t next_segment_ = 0;
  std::size_t limit_nbytes_ = 0;
  bool poison_ = false;
  AllocatorStats stats_;
};

}  // namespace heddle
