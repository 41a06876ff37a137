// One backend per device.
#include <array>
#include <atomic>

#include "engine/backend/backend.h"

namespace heddle {
namespace {

constexpr int kMaxGpus = 64;

struct Backends {
  Backends() { slots[0].store(make_cpu_backend().release()); }
  std::array<std::atomic<Backend*>, 1 + kMaxGpus> slots{};
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

}  // namespace

Backend& backend_for(Device device) {
  Backend* const backend = backends().slots[slot_of(device)].load(std::memory_order_acquire);
  HEDDLE_CHECK(backend != nullptr, "no backend for ", device, " in this program");
  return *backend;
}

void register_backend(std::unique_ptr<Backend> backend) {
  const Device device = backend->device();
  Backend* expected = nullptr;
  HEDDLE_CHECK(backends().slots[slot_of(device)].compare_exchange_strong(expected, backend.get()), "device ", device,
               " has a backend already");
  backend.release();
}

}  // namespace heddle
