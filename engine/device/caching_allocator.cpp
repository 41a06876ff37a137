#include "engine/device/caching_allocator.h"

#include <algorithm>

#include "engine/core/error.h"

namespace heddle {
namespace {

constexpr std::size_t kSegmentGranularity = std::size_t{2} << 20;
constexpr std::size_t kMinSegment = std::size_t{4} << 20;

// Rounds up to a multiple; the largest possible multiple when that would overflow.
std::size_t round_up(std::size_t nbytes, std::size_t multiple) {
  const std::size_t limit = SIZE_MAX / multiple * multiple;
  return nbytes > limit - multiple ? limit : (nbytes + multiple - 1) / multiple * multiple;
}

}  // namespace

CachingAllocator::CachingAllocator(DeviceRuntime& runtime) : runtime_(runtime) {}

CachingAllocator::~CachingAllocator() { release_cached(); }

void* CachingAllocator::allocate(std::size_t nbytes) {
  const std::size_t size = round_up(std::max<std::size_t>(nbytes, 1), kAlignment);
  const std::lock_guard lock(mutex_);
  void* block = take(size);
  if (block == nullptr) {
    // Free segments that are all too small would only pile up beside the new one.
    if (cached_segments_nbytes() > 0) release_cached_locked();
    if (!add_segment(size)) throw_out_of_memory(nbytes);
    block = take(size);
  }
  ++stats_.requests;
  stats_.peak_in_use_nbytes = std::max(stats_.peak_in_use_nbytes, stats_.in_use_nbytes);
  if (poison_) runtime_.fill_async(block, 0xff, size, current_stream(runtime_.device()));
  return block;
}

void* CachingAllocator::take(std::size_t nbytes) {
  const auto fit = free_blocks_.lower_bound({nbytes, nullptr});
  if (fit == free_blocks_.end()) return nullptr;
  std::byte* const address = fit->second;
  free_blocks_.erase(fit);
  Block& block = blocks_.at(address);
  block.free = false;
  if (const std::size_t rest = block.nbytes - nbytes; rest > 0) {
    blocks_.emplace(address + nbytes, Block{rest, block.segment, true});
    free_blocks_.emplace(rest, address + nbytes);
    block.nbytes = nbytes;
  }
  stats_.in_use_nbytes += nbytes;
  return address;
}

bool CachingAllocator::add_segment(std::size_t nbytes) {
  // Segments grow with what is held, so that their number stays small, but never by more than an eighth.
  const std::size_t wanted = round_up(std::max({nbytes, kMinSegment, stats_.reserved_nbytes / 8}), kSegmentGranularity);
  for (const std::size_t size : {wanted, round_up(nbytes, kSegmentGranularity)}) {
    if (limit_nbytes_ != 0 && (size > limit_nbytes_ || stats_.reserved_nbytes > limit_nbytes_ - size)) continue;
    auto* const begin = static_cast<std::byte*>(runtime_.allocate(size));
    if (begin == nullptr) continue;
    const std::uint64_t id = next_segment_++;
    segments_.emplace(id, Segment{begin, size});
    blocks_.emplace(begin, Block{size, id, true});
    free_blocks_.emplace(size, begin);
    ++stats_.device_allocations;
    stats_.reserved_nbytes += size;
    stats_.peak_reserved_nbytes = std::max(stats_.peak_reserved_nbytes, stats_.reserved_nbytes);
    return true;
  }
  return false;
}

void CachingAllocator::deallocate(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<std::byte*>(data));
  if (block == blocks_.end() || block->second.free) return;
  stats_.in_use_nbytes -= block->second.nbytes;
  block->second.free = true;
  const auto mergeable = [&](BlockMap::iterator other) {
    return other->second.free && other->second.segment == block->second.segment;
  };
  if (const auto next = std::next(block); next != blocks_.end() && mergeable(next)) {
    free_blocks_.erase({next->second.nbytes, next->first});
    block->second.nbytes += next->second.nbytes;
    blocks_.erase(next);
  }
  if (block != blocks_.begin()) {
    if (const auto previous = std::prev(block); mergeable(previous)) {
      free_blocks_.erase({previous->second.nbytes, previous->first});
      previous->second.nbytes += block->second.nbytes;
      blocks_.erase(block);
      block = previous;
    }
  }
  free_blocks_.emplace(block->second.nbytes, block->first);
}

std::size_t CachingAllocator::cached_segments_nbytes() const {
  std::size_t total = 0;
  for (const auto& [id, segment] : segments_) {
    const Block& first = blocks_.at(segment.begin);
    if (first.free && first.nbytes == segment.nbytes) total += segment.nbytes;
  }
  return total;
}

void CachingAllocator::release_cached_locked() noexcept {
  for (auto it = segments_.begin(); it != segments_.end();) {
    const auto first = blocks_.find(it->second.begin);
    if (!first->second.free || first->second.nbytes != it->second.nbytes) {
      ++it;
      continue;
    }
    free_blocks_.erase({first->second.nbytes, first->first});
    blocks_.erase(first);
    runtime_.deallocate(it->second.begin, it->second.nbytes);
    stats_.reserved_nbytes -= it->second.nbytes;
    it = segments_.erase(it);
  }
}

void CachingAllocator::release_cached() noexcept {
  const std::lock_guard lock(mutex_);
  release_cached_locked();
}

void CachingAllocator::set_limit(std::size_t nbytes) {
  const std::lock_guard lock(mutex_);
  limit_nbytes_ = nbytes;
}

void CachingAllocator::set_poison(bool on) {
  const std::lock_guard lock(mutex_);
  poison_ = on;
}

AllocatorStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peaks() {
  const std::lock_guard lock(mutex_);
  stats_.peak_in_use_nbytes = stats_.in_use_nbytes;
  stats_.peak_reserved_nbytes = stats_.reserved_nbytes;
}

void CachingAllocator::throw_out_of_memory(std::size_t nbytes) const {
  const MemoryInfo memory = runtime_.memory_info();
  std::string limit = limit_nbytes_ == 0 ? "" : join_text(", limit ", limit_nbytes_);
  throw OutOfMemory(
      join_text("out of memory on ", runtime_.device(), ": asked for ", nbytes, " bytes; ", stats_.in_use_nbytes,
                " in use by tensors, ", stats_.reserved_nbytes - stats_.in_use_nbytes, " cached, ", memory.free_nbytes,
                " free of ", memory.total_nbytes, limit, "; a smaller batch size needs less"),
      nbytes);
}

}  // namespace heddle
