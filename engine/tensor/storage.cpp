#include "engine/tensor/storage.h"

#include "engine/device/caching_allocator.h"

namespace heddle {

std::shared_ptr<Storage> Storage::allocate(std::size_t nbytes, Device device, Lifetime lifetime) {
  std::shared_ptr<CachingAllocator> allocator = allocator_ptr_for(device);
  // Made empty first, so that its destructor gives the block back whatever fails from there on.
  std::shared_ptr<Storage> storage(new Storage(nullptr, nbytes, device, std::move(allocator)));
  storage->data_ = storage->allocator_->allocate(nbytes, lifetime);
  return storage;
}

std::shared_ptr<Storage> Storage::wrap(void* data, std::size_t nbytes, Device device) {
  HEDDLE_CHECK(data != nullptr || nbytes == 0, "cannot wrap a null pointer as ", nbytes, " bytes");
  return std::shared_ptr<Storage>(new Storage(data, nbytes, device, nullptr));
}

std::shared_ptr<Storage> Storage::adopt(void* data, std::size_t nbytes, Device device, std::shared_ptr<void> owner) {
  HEDDLE_CHECK(data != nullptr && owner != nullptr, "adopted memory of ", nbytes, " bytes has no owner, or is none");
  std::shared_ptr<Storage> storage(new Storage(data, nbytes, device, nullptr));
  storage->owner_ = std::move(owner);
  return storage;
}

Storage::~Storage() {
  if (allocator_ != nullptr) allocator_->deallocate(data_);
}

}  // namespace heddle
