// One backend per device.
#include <array>
#include <atomic>
#include <mutex>

#include "engine/backend/backend.h"

namespace heddle {
namespace {

constexpr int kMaxGpus = 64;

struct Backends {
  Backends() { slots[0].store(make_cpu_backend().release()); }
  std::array<std::atomic<Backend*>, 1 + kMaxGpus> slots{};
  std::mutex mutex;
  std::array<BackendFactory, 1 + kMaxGpus> factories{};  // of those not made yet
};

// Never destroyed, like the device registry.
Backends& backends() {
  static Backends* const instance = new Backends;
  return *instance;
}

std::size_t slot_of(Device device) {
  HEDDLE_CHECK(device.index >= 0 && device.index < (device.is_cpu() ? 1 : kMaxGpus), "no such device: ", device);
  return device.is_cpu() ? 0 : static_cast<std::size_t>(1 + device.index);
}

Backend* make_backend(std::size_t slot) {
  Backends& all = backends();
  const std::lock_guard lock(all.mutex);
  Backend* backend = all.slots[slot].load();
  if (backend == nullptr && all.factories[slot] != nullptr) {
    backend = all.factories[slot]().release();
    all.slots[slot].store(backend, std::memory_order_release);
    all.factories[slot] = nullptr;
  }
  return backend;
}

}  // namespace

Backend& backend_for(Device device) {
  const std::size_t slot = slot_of(device);
  Backend* backend = backends().slots[slot].load(std::memory_order_acquire);
  if (backend == nullptr) [[unlikely]]
    backend = make_backend(slot);
  HEDDLE_CHECK(backend != nullptr, "no backend for ", device, " in this program");
  return *backend;
}

void register_backend(Device device, BackendFactory factory) {
  const std::size_t slot = slot_of(device);
  Backends& all = backends();
  const std::lock_guard lock(all.mutex);
  HEDDLE_CHECK(all.slots[slot].load() == nullptr && all.factories[slot] == nullptr, "device ", device,
               " has a backend already");
  all.factories[slot] = std::move(factory);
}

}  // namespace heddle
