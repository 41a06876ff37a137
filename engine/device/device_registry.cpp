// The devices that the program knows. The CPU is there from the first use on; plugins add theirs.
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "engine/device/caching_allocator.h"
#include "engine/device/cpu_runtime.h"
#include "engine/device/device_runtime.h"

namespace heddle {
namespace {

constexpr int kMaxGpus = 64;

struct Entry {
  std::unique_ptr<DeviceRuntime> runtime;
  std::shared_ptr<CachingAllocator> allocator;
};

struct Registry {
  Registry() { publish(0, std::make_unique<CpuRuntime>()); }

  void publish(int slot, std::unique_ptr<DeviceRuntime> runtime) {
    auto entry = std::make_unique<Entry>();
    // Never destroyed: tensors with static storage duration may outlive any order of destruction we could choose. So
    // the pointer counts no owners, and its copies cost nothing.
    entry->allocator = std::shared_ptr<CachingAllocator>(std::shared_ptr<void>(), new CachingAllocator(*runtime));
    entry->runtime = std::move(runtime);
    entries[static_cast<std::size_t>(slot)].store(entry.release(), std::memory_order_release);
  }

  std::mutex mutex;
  std::array<std::atomic<Entry*>, 1 + kMaxGpus> entries{};
};

Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

int slot_of(Device device) {
  const int slot = device.is_cpu() ? device.index : 1 + device.index;
  const bool valid = device.is_cpu() ? device.index == 0 : device.index >= 0 && device.index < kMaxGpus;
  HEDDLE_CHECK(valid, "no such device: ", device.type == DeviceType::cpu ? "cpu:" : "cuda:", device.index);
  return slot;
}

Entry& entry_of(Device device) {
  Entry* const entry = registry().entries[static_cast<std::size_t>(slot_of(device))].load(std::memory_order_acquire);
  HEDDLE_CHECK(entry != nullptr, "device ", device, " is not available in this program");
  return *entry;
}

// What guards of this thread have set; null: the device's own.
thread_local std::array<void*, 1 + kMaxGpus> stream_handles{};
thread_local std::array<const std::shared_ptr<CachingAllocator>*, 1 + kMaxGpus> thread_allocators{};

}  // namespace

DeviceRuntime& runtime_for(Device device) { return *entry_of(device).runtime; }

const std::shared_ptr<CachingAllocator>& allocator_ptr_for(Device device) {
  const std::shared_ptr<CachingAllocator>* const own = thread_allocators[static_cast<std::size_t>(slot_of(device))];
  return own != nullptr ? *own : entry_of(device).allocator;
}

AllocatorGuard::AllocatorGuard(std::shared_ptr<CachingAllocator> allocator) : allocator_(std::move(allocator)) {
  HEDDLE_CHECK(allocator_ != nullptr, "AllocatorGuard: no allocator");
  auto& current = thread_allocators[static_cast<std::size_t>(slot_of(allocator_->device()))];
  previous_ = current;
  current = &allocator_;
}

AllocatorGuard::~AllocatorGuard() {
  thread_allocators[static_cast<std::size_t>(slot_of(allocator_->device()))] = previous_;
}

void register_device(std::unique_ptr<DeviceRuntime> runtime) {
  const Device device = runtime->device();
  const int slot = slot_of(device);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  HEDDLE_CHECK(all.entries[static_cast<std::size_t>(slot)].load() == nullptr, "device ", device,
               " is registered already");
  all.publish(slot, std::move(runtime));
}

bool is_registered(Device device) noexcept {
  if (device.is_cpu()) return device.index == 0;
  if (device.index < 0 || device.index >= kMaxGpus) return false;
  return registry().entries[static_cast<std::size_t>(1 + device.index)].load(std::memory_order_acquire) != nullptr;
}

Stream current_stream(Device device) {
  void* const own = stream_handles[static_cast<std::size_t>(slot_of(device))];
  return own != nullptr || device.is_cpu() ? Stream{device, own} : entry_of(device).runtime->default_stream();
}

StreamGuard::StreamGuard(Stream stream) {
  void*& current = stream_handles[static_cast<std::size_t>(slot_of(stream.device))];
  previous_ = {stream.device, current};
  current = stream.handle;
}

StreamGuard::~StreamGuard() { stream_handles[static_cast<std::size_t>(slot_of(previous_.device))] = previous_.handle; }

}  // namespace heddle
