#include "engine/cpu/packed_weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "engine/core/parallel.h"

namespace heddle::cpu {
namespace {

// Large enough that a thread's share outweighs waking it.
constexpr std::int64_t kGrainNbytes = 1 << 18;
// Layouts kept of one weight: both passes, for two batch sizes that want different ones.
constexpr std::size_t kMaxVariants = 4;

bool equal_bytes(const void* a, const void* b, std::size_t nbytes) {
  std::atomic<bool> equal{true};
  parallel_for(static_cast<std::int64_t>(nbytes), kGrainNbytes, [&](std::int64_t begin, std::int64_t end) {
    const auto* const pa = static_cast<const std::byte*>(a) + begin;
    const auto* const pb = static_cast<const std::byte*>(b) + begin;
    if (std::memcmp(pa, pb, static_cast<std::size_t>(end - begin)) != 0) equal.store(false, std::memory_order_relaxed);
  });
  return equal.load(std::memory_order_relaxed);
}

void copy_bytes(void* destination, const void* source, std::size_t nbytes) {
  parallel_for(static_cast<std::int64_t>(nbytes), kGrainNbytes, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte*>(destination) + begin, static_cast<const std::byte*>(source) + begin,
                static_cast<std::size_t>(end - begin));
  });
}

}  // namespace

PackedWeights& PackedWeights::local() {
  thread_local PackedWeights instance;
  return instance;
}

std::shared_ptr<Storage> PackedWeights::get(const Tensor& w, const PackedLayout& layout, std::size_t packed_nbytes,
                                            const std::function<void(void*)>& pack) {
  const Key key{reinterpret_cast<std::uint64_t>(w.raw_data()), w.nbytes()};
  Entry* entry = entries_.find(key);
  if (entry == nullptr) {
    forget_dead();
    forget_down_to(kMaxNbytes);
    Entry fresh{.owner = w.storage(),
                .copy = Storage::allocate(w.nbytes(), Device::cpu(), Lifetime::kept),
                .variants = {},
                .nbytes = w.nbytes()};
    copy_bytes(fresh.copy->data(), w.raw_data(), w.nbytes());
    nbytes_ += fresh.nbytes;
    entry = &entries_.insert(key, std::move(fresh));
  } else if (!equal_bytes(entry->copy->data(), w.raw_data(), w.nbytes())) {
    for (Variant& variant : entry->variants) variant.current = false;
    copy_bytes(entry->copy->data(), w.raw_data(), w.nbytes());
  }
  entry->owner = w.storage();  // another block may have come to this address
  auto& variants = entry->variants;
  auto found = std::find_if(variants.begin(), variants.end(), [&](const Variant& v) { return v.layout == layout; });
  if (found == variants.end()) {
    if (variants.size() == kMaxVariants) {
      nbytes_ -= variants.front().memory->nbytes();
      entry->nbytes -= variants.front().memory->nbytes();
      variants.erase(variants.begin());
    }
    variants.push_back({.layout = layout, .memory = Storage::allocate(packed_nbytes, Device::cpu(), Lifetime::kept)});
    nbytes_ += packed_nbytes;
    entry->nbytes += packed_nbytes;
    found = variants.end() - 1;
  }
  if (!found->current) {
    pack(found->memory->data());
    ++packs_;
    found->current = true;
  }
  return found->memory;
}

void PackedWeights::forget_dead() {
  entries_.forget_if([this](const Entry& entry) {
    if (!entry.owner.expired()) return false;
    nbytes_ -= entry.nbytes;
    return true;
  });
}

void PackedWeights::forget_down_to(std::size_t nbytes) {
  while (entries_.size() != 0 && (nbytes_ > nbytes || entries_.size() >= kMaxEntries)) {
    nbytes_ -= entries_.oldest().nbytes;
    entries_.forget_oldest();
  }
}

void PackedWeights::clear() {
  while (entries_.size() != 0) entries_.forget_oldest();
  nbytes_ = 0;
}

}  // namespace heddle::cpu
