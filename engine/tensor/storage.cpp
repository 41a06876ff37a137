#include "engine/tensor/storage.h"

#include "engine/device/caching_allocator.h"

namespace heddle {

std::shared_ptr<Storage> Storage::allocate(std::size_t nbytes, Device device) {
  CachingAllocator& allocator = allocator_for(device);
  void* const data = allocator.allocate(nbytes);
  try {
    return std::shared_ptr<Storage>(new Storage(data, nbytes, device, false));
  } catch (...) {
    allocator.deallocate(data);
    throw;
  }
}

std::shared_ptr<Storage> Storage::wrap(void* data, std::size_t nbytes, Device device) {
  HEDDLE_CHECK(data != nullptr || nbytes == 0, "cannot wrap a null pointer as ", nbytes, " bytes");
  return std::shared_ptr<Storage>(new Storage(data, nbytes, device, true));
}

Storage::~Storage() {
  if (!external_) allocator_for(device_).deallocate(data_);
}

}  // namespace heddle
