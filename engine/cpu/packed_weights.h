// Weights in the layouts that fast kernels want, made again only when the weights changed. Used by conv2d; knows
// nothing of the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/cpu/lru_cache.h"
#include "engine/tensor/tensor.h"

namespace heddle::cpu {

// Which layout: plain data that tells kernels, passes and formats apart.
struct PackedLayout {
  std::int64_t kernel = 0;
  std::int64_t pass = 0;
  std::int64_t format = 0;
  friend bool operator==(const PackedLayout&, const PackedLayout&) = default;
};

// One per thread. Entries are found by the address of the weights and are used only if the weights still hold the bytes
// from which they were packed: comparing costs a small part of a convolution, and no way of changing memory (an old
// pointer, memory of the host program, a freed and reused block) can leave stale weights behind. What belongs to
// weights that are gone (a model that was destroyed) is given back when the next new weights come.
class PackedWeights {
 public:
  // Weights remembered at most, and bytes of their copies and layouts.
  static constexpr std::size_t kMaxEntries = 256;
  static constexpr std::size_t kMaxNbytes = std::size_t{512} << 20;

  // The calling thread's.
  static PackedWeights& local();

  // w in the given layout: packed_nbytes bytes, which pack(destination) writes if needed. The pointer holds the memory.
  // Throws: OutOfMemory, and what pack throws.
  std::shared_ptr<Storage> get(const Tensor& w, const PackedLayout& layout, std::size_t packed_nbytes,
                               const std::function<void(void*)>& pack);

  std::uint64_t packs() const noexcept { return packs_; }  // calls of pack so far
  std::size_t nbytes() const noexcept { return nbytes_; }
  void clear();

 private:
  struct Key {
    std::uint64_t address = 0;
    std::uint64_t nbytes = 0;
  };
  struct Variant {
    PackedLayout layout;
    std::shared_ptr<Storage> memory;
    bool current = false;
  };
  struct Entry {
    std::weak_ptr<Storage> owner;   // of the weights
    std::shared_ptr<Storage> copy;  // the bytes that the current variants were packed from
    std::vector<Variant> variants;
    std::size_t nbytes = 0;
  };

  void forget_dead();
  void forget_down_to(std::size_t nbytes);

  LruCache<Key, Entry> entries_{kMaxEntries + 1};
  std::size_t nbytes_ = 0;
  std::uint64_t packs_ = 0;
};

}  // namespace heddle::cpu
