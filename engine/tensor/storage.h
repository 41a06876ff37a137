// The memory behind tensors, and the counter of its changes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "../device/device.h"

namespace heddle {

class CachingAllocator;

// A block of device memory, shared by all tensors that view it. Freed with the last of them. It keeps the allocator
// that it came from alive.
class Storage {
 public:
  // Memory from allocator_for(device); contents are undefined. Throws: OutOfMemory, InvalidArgument.
  static std::shared_ptr<Storage> allocate(std::size_t nbytes, Device device, Lifetime lifetime = Lifetime::step);
  // Memory that belongs to the caller and must outlive the storage.
  static std::shared_ptr<Storage> wrap(void* data, std::size_t nbytes, Device device);
  // Memory that lives until `owner` is destroyed, which the storage holds.
  static std::shared_ptr<Storage> adopt(void* data, std::size_t nbytes, Device device, std::shared_ptr<void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const noexcept { return data_; }
  std::size_t nbytes() const noexcept { return nbytes_; }
  Device device() const noexcept { return device_; }
  // True if the caller owns the memory and can change it behind our back.
  bool is_external() const noexcept { return allocator_ == nullptr && owner_ == nullptr; }

 private:
  Storage(void* data, std::size_t nbytes, Device device, std::shared_ptr<CachingAllocator> allocator)
      : data_(data), nbytes_(nbytes), device_(device), allocator_(std::move(allocator)) {}

  void* data_;
  std::size_t nbytes_;
  Device device_;
  // Both null: the memory is the caller's.
  std::shared_ptr<CachingAllocator> allocator_;
  std::shared_ptr<void> owner_;
};

// Counts changes of a piece of memory. A counter made for a part of a larger buffer also sees changes of the whole, and
// the whole's sees those of its parts, while a change of a part leaves its neighbours' counters alone. Thread-safe.
class VersionCounter {
 public:
  explicit VersionCounter(std::shared_ptr<VersionCounter> whole = nullptr) : whole_(std::move(whole)) {}
  std::uint64_t value() const noexcept {
    return changed_inside_.load(std::memory_order_relaxed) + changed_as_a_whole();
  }
  void bump() noexcept {
    count_.fetch_add(1, std::memory_order_relaxed);
    for (VersionCounter* outer = whole_.get(); outer != nullptr; outer = outer->whole_.get()) {
      outer->changed_inside_.fetch_add(1, std::memory_order_relaxed);
    }
  }

 private:
  std::uint64_t changed_as_a_whole() const noexcept {
    return count_.load(std::memory_order_relaxed) + (whole_ == nullptr ? 0 : whole_->changed_as_a_whole());
  }

  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> changed_inside_{0};  // changes made through parts
  std::shared_ptr<VersionCounter> whole_;
};

}  // namespace heddle
