// Serves tensor memory of one device from segments that it keeps, so that a training step that repeats its sizes asks
// the device for nothing. Used by Storage; knows only DeviceRuntime. Besides the one allocator of every device there
// can be others that a thread uses for a while (AllocatorGuard): a StepGraph keeps the memory of its graphs in one.
//
// A block belongs to the stream that was current when it was handed out, and goes back to that stream: work queued
// there later may write it while work queued earlier still reads it, in order. Memory that another stream uses too must
// not be freed before that stream has been waited for, by the host or with DeviceRuntime::wait.
//
// A request takes the first place that is large enough, in the order in which segments were made. A step that repeats
// its requests from the same start therefore gets the same places, and needs no new segment. What a first step makes to
// keep it has places of its own (Lifetime), or the second step would start with holes filled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

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

// Thread-safe. After an exception it is consistent and no block is lost.
class CachingAllocator {
 public:
  static constexpr std::size_t kAlignment = 256;

  // The runtime must outlive it. When memory runs out, what `relative` has cached is freed too.
  explicit CachingAllocator(DeviceRuntime& runtime, std::shared_ptr<CachingAllocator> relative = nullptr);
  // Blocks must have been given back; tensors keep their allocator alive.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  Device device() const noexcept { return runtime_.device(); }

  // A block of at least nbytes (also for 0), aligned to kAlignment, for the calling thread's current stream of the
  // device; contents are undefined. When the device is out of memory, cached segments of all streams are freed and the
  // request is tried again. Throws: OutOfMemory with device, bytes asked, in use, free and total.
  void* allocate(std::size_t nbytes, Lifetime lifetime = Lifetime::step);
  // Does not wait for the work that uses the block.
  void deallocate(void* block) noexcept;

  // Gives segments without a live block back to the device, after the work of their streams is done.
  void release_cached() noexcept;
  // While on, no segment is given back, neither by release_cached() nor when memory runs out.
  void set_keep_segments(bool on);
  // Most bytes to reserve, 0 for no limit. Requests beyond it throw OutOfMemory.
  void set_limit(std::size_t nbytes);
  // Fills every block with 0xff bytes (NaN) when it is handed out; for tests.
  void set_poison(bool on);
  AllocatorStats stats() const;
  // Peaks restart from the present values.
  void reset_peaks();

 private:
  // A place in the order of search: segments by age, then by address.
  struct Place {
    std::uint64_t order;
    std::byte* address;
    friend bool operator<(const Place& a, const Place& b) noexcept {
      return a.order != b.order ? a.order < b.order : a.address < b.address;
    }
  };
  using PlaceSet = std::set<Place>;
  static constexpr int kSizeClasses = 64;
  // What one stream has for one lifetime: free blocks by the power of two below their size.
  struct Pool {
    Stream stream;
    Lifetime lifetime;
    std::array<PlaceSet, kSizeClasses> free;
  };
  struct Segment {
    Pool* pool;
    std::uint64_t order;
    std::byte* begin;
    std::size_t nbytes;
  };
  struct Block {
    std::size_t nbytes;
    const Segment* segment;
    bool free;
    // The entry in Pool::free, kept here while the block is in use so that giving it back allocates nothing.
    PlaceSet::node_type entry;
  };
  using BlockMap = std::map<std::byte*, Block>;

  Pool& pool_for(Stream stream, Lifetime lifetime);
  void* take(Pool& pool, std::size_t nbytes);
  BlockMap::iterator find_free(Pool& pool, std::size_t nbytes);
  bool grow(Pool& pool, std::size_t nbytes);
  bool add_segment(Pool& pool, std::size_t nbytes, std::uint64_t order);
  void insert_free(BlockMap::iterator block) noexcept;
  void extract_free(BlockMap::iterator block) noexcept;
  bool is_cached(const Segment& segment) const;
  std::size_t release_segments(const Pool* only, std::uint64_t* oldest) noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t nbytes) const;

  DeviceRuntime& runtime_;
  std::shared_ptr<CachingAllocator> relative_;
  mutable std::mutex mutex_;
  std::map<std::pair<void*, Lifetime>, Pool> pools_;  // by stream handle
  BlockMap blocks_;                                   // free and used
  std::list<Segment> segments_;
  std::uint64_t next_order_ = 0;
  std::size_t most_in_use_nbytes_ = 0;
  std::size_t limit_nbytes_ = 0;
  bool keep_segments_ = false;
  bool poison_ = false;
  AllocatorStats stats_;
};

// The allocator that serves all tensors of the device that the calling thread makes: the device's own, or that of the
// innermost AllocatorGuard.
const std::shared_ptr<CachingAllocator>& allocator_ptr_for(Device device);
inline CachingAllocator& allocator_for(Device device) { return *allocator_ptr_for(device); }

// Makes the calling thread take the tensor memory of one device from another allocator while it lives. Tensors remember
// where they came from and may outlive the guard.
class AllocatorGuard {
 public:
  explicit AllocatorGuard(std::shared_ptr<CachingAllocator> allocator);
  ~AllocatorGuard();
  AllocatorGuard(const AllocatorGuard&) = delete;
  AllocatorGuard& operator=(const AllocatorGuard&) = delete;

 private:
  std::shared_ptr<CachingAllocator> allocator_;
  const std::shared_ptr<CachingAllocator>* previous_;
};

}  // namespace heddle
