#include "engine/device/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <utility>

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

// The power of two below.
std::size_t size_class(std::size_t nbytes) noexcept { return static_cast<std::size_t>(std::bit_width(nbytes)) - 1; }

}  // namespace

CachingAllocator::CachingAllocator(DeviceRuntime& runtime, std::shared_ptr<CachingAllocator> relative)
    : runtime_(runtime), relative_(std::move(relative)) {}

CachingAllocator::~CachingAllocator() {
  keep_segments_ = false;
  release_cached();
}

void* CachingAllocator::allocate(std::size_t nbytes, Lifetime lifetime) {
  const std::size_t size = round_up(std::max<std::size_t>(nbytes, 1), kAlignment);
  const Stream stream = current_stream(runtime_.device());
  void* block = nullptr;
  bool poison = false;
  {
    const std::lock_guard lock(mutex_);
    Pool& pool = pool_for(stream, lifetime);
    block = take(pool, size);
    if (block == nullptr) {
      if (!grow(pool, size)) throw_out_of_memory(nbytes);
      block = take(pool, size);
    }
    ++stats_.requests;
    stats_.peak_in_use_nbytes = std::max(stats_.peak_in_use_nbytes, stats_.in_use_nbytes);
    most_in_use_nbytes_ = std::max(most_in_use_nbytes_, stats_.in_use_nbytes);
    poison = poison_;
  }
  if (poison) {
    try {
      runtime_.fill_async(block, 0xff, size, stream);
    } catch (...) {
      deallocate(block);
      throw;
    }
  }
  return block;
}

CachingAllocator::Pool& CachingAllocator::pool_for(Stream stream, Lifetime lifetime) {
  Pool& pool = pools_[{stream.handle, lifetime}];
  pool.stream = stream;
  pool.lifetime = lifetime;
  return pool;
}

// The free block that comes first in the order of search, among those large enough.
CachingAllocator::BlockMap::iterator CachingAllocator::find_free(Pool& pool, std::size_t nbytes) {
  const std::size_t first_class = size_class(nbytes);
  const Place* best = nullptr;
  for (const Place& place : pool.free[first_class]) {
    if (blocks_.find(place.address)->second.nbytes < nbytes) continue;
    best = &place;
    break;
  }
  for (std::size_t larger = first_class + 1; larger < kSizeClasses; ++larger) {
    if (pool.free[larger].empty()) continue;
    const Place& place = *pool.free[larger].begin();
    if (best == nullptr || place < *best) best = &place;
  }
  return best == nullptr ? blocks_.end() : blocks_.find(best->address);
}

void* CachingAllocator::take(Pool& pool, std::size_t nbytes) {
  const auto found = find_free(pool, nbytes);
  if (found == blocks_.end()) return nullptr;
  std::byte* const address = found->first;
  Block& block = found->second;
  if (const std::size_t rest = block.nbytes - nbytes; rest > 0) {
    // All that can fail comes before the first change.
    PlaceSet entry;
    entry.insert({block.segment->order, address + nbytes});
    const auto remainder = blocks_.emplace(address + nbytes, Block{rest, block.segment, true, {}}).first;
    remainder->second.entry = entry.extract(entry.begin());
    insert_free(remainder);
  }
  extract_free(found);
  block.free = false;
  block.nbytes = nbytes;
  stats_.in_use_nbytes += nbytes;
  return address;
}

void CachingAllocator::insert_free(BlockMap::iterator block) noexcept {
  Block& b = block->second;
  b.segment->pool->free[size_class(b.nbytes)].insert(std::move(b.entry));
}

void CachingAllocator::extract_free(BlockMap::iterator block) noexcept {
  Block& b = block->second;
  b.entry = b.segment->pool->free[size_class(b.nbytes)].extract({b.segment->order, block->first});
}

bool CachingAllocator::grow(Pool& pool, std::size_t nbytes) {
  // Segments grow with what is held, so that their number stays small, but never by more than an eighth.
  const std::size_t ahead =
      pool.lifetime == Lifetime::kept ? nbytes : std::max(kMinSegment, stats_.reserved_nbytes / 8);
  std::size_t wanted = std::max(nbytes, ahead);
  std::uint64_t order = next_order_;
  // Segments that are free and all too small stay as long as the sum is bounded: a step that has used them will look
  // for them when it is repeated. Then a new one takes their place, as large as they were together.
  const std::size_t bound = 2 * std::max(most_in_use_nbytes_, stats_.in_use_nbytes + nbytes) + 2 * kMinSegment;
  if (!keep_segments_ && stats_.reserved_nbytes + wanted > bound) {
    wanted = std::max(wanted, release_segments(&pool, &order));
  }
  wanted = round_up(wanted, kSegmentGranularity);
  const std::size_t least = round_up(nbytes, kSegmentGranularity);
  if (add_segment(pool, wanted, order) || add_segment(pool, least, order)) return true;
  if (!keep_segments_) release_segments(nullptr, nullptr);
  if (relative_ != nullptr) relative_->release_cached();
  return add_segment(pool, least, order);
}

bool CachingAllocator::add_segment(Pool& pool, std::size_t nbytes, std::uint64_t order) {
  if (limit_nbytes_ != 0 && (nbytes > limit_nbytes_ || stats_.reserved_nbytes > limit_nbytes_ - nbytes)) return false;
  PlaceSet entry;
  entry.insert({order, nullptr});
  std::list<Segment> segment;
  segment.push_back({&pool, order, nullptr, nbytes});
  auto* const begin = static_cast<std::byte*>(runtime_.allocate(nbytes));
  if (begin == nullptr) return false;
  segment.front().begin = begin;
  BlockMap::iterator block;
  try {
    block = blocks_.emplace(begin, Block{nbytes, &segment.front(), true, {}}).first;
  } catch (...) {
    runtime_.deallocate(begin, nbytes);
    throw;
  }
  segments_.splice(segments_.end(), segment);
  block->second.entry = entry.extract(entry.begin());
  block->second.entry.value().address = begin;
  insert_free(block);
  next_order_ = std::max(next_order_, order + 1);
  ++stats_.device_allocations;
  stats_.reserved_nbytes += nbytes;
  stats_.peak_reserved_nbytes = std::max(stats_.peak_reserved_nbytes, stats_.reserved_nbytes);
  return true;
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
    extract_free(next);
    block->second.nbytes += next->second.nbytes;
    blocks_.erase(next);
  }
  if (block != blocks_.begin()) {
    if (const auto previous = std::prev(block); mergeable(previous)) {
      extract_free(previous);
      previous->second.nbytes += block->second.nbytes;
      blocks_.erase(block);
      block = previous;
    }
  }
  insert_free(block);
}

bool CachingAllocator::is_cached(const Segment& segment) const {
  const Block& first = blocks_.find(segment.begin)->second;
  return first.free && first.nbytes == segment.nbytes;
}

// Frees the cached segments of one stream, or of all (nullptr). Returns their bytes, and the place of the oldest in the
// order of search if there was one.
std::size_t CachingAllocator::release_segments(const Pool* only, std::uint64_t* oldest) noexcept {
  std::size_t released = 0;
  const Pool* waited_for = nullptr;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    if ((only != nullptr && segment->pool != only) || !is_cached(*segment)) {
      ++segment;
      continue;
    }
    if (waited_for != segment->pool) {
      waited_for = segment->pool;
      try {
        runtime_.synchronize(waited_for->stream);
      } catch (...) {
        // A stream that has failed does no more work; whoever waits for it next is told.
      }
    }
    const auto block = blocks_.find(segment->begin);
    extract_free(block);
    blocks_.erase(block);
    runtime_.deallocate(segment->begin, segment->nbytes);
    stats_.reserved_nbytes -= segment->nbytes;
    released += segment->nbytes;
    if (oldest != nullptr) *oldest = std::min(*oldest, segment->order);
    segment = segments_.erase(segment);
  }
  return released;
}

void CachingAllocator::release_cached() noexcept {
  const std::lock_guard lock(mutex_);
  if (keep_segments_) return;
  release_segments(nullptr, nullptr);
  most_in_use_nbytes_ = stats_.in_use_nbytes;
}

void CachingAllocator::set_keep_segments(bool on) {
  const std::lock_guard lock(mutex_);
  keep_segments_ = on;
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
  MemoryInfo memory;
  try {
    memory = runtime_.memory_info();
  } catch (const DeviceError&) {
    // The numbers are left out rather than the reason.
  }
  std::string limit = limit_nbytes_ == 0 ? "" : join_text(", limit ", limit_nbytes_);
  throw OutOfMemory(
      join_text("out of memory on ", runtime_.device(), ": asked for ", nbytes, " bytes; ", stats_.in_use_nbytes,
                " in use by tensors, ", stats_.reserved_nbytes - stats_.in_use_nbytes, " cached, ", memory.free_nbytes,
                " free of ", memory.total_nbytes, limit, "; a smaller batch size needs less"),
      nbytes);
}

}  // namespace heddle
