#include "engine/device/device_runtime.h"

#include <cstring>
#include <new>

#include "engine/core/error.h"

namespace heddle {

DeviceProperties DeviceRuntime::properties() const {
  return {.name = description(), .memory_nbytes = memory_info().total_nbytes};
}

HostBuffer DeviceRuntime::allocate_host(std::size_t nbytes) {
  constexpr std::align_val_t kAlignment{64};
  void* const data = ::operator new(nbytes == 0 ? 1 : nbytes, kAlignment, std::nothrow);
  if (data == nullptr) {
    throw OutOfMemory(join_text("out of memory on ", device(), ": asked for ", nbytes, " bytes of host memory"),
                      nbytes);
  }
  std::memset(data, 0, nbytes);
  std::shared_ptr<void> owner(data, [](void* p) { ::operator delete(p, kAlignment); });
  return {.owner = std::move(owner), .host = data, .device = data, .nbytes = nbytes};
}

}  // namespace heddle
