// The CUDA runtime's functions for memory: allocation, pinned memory, pointers.
#include "tests/cudasim/api.h"

using namespace cudasim;

namespace {

cudaError_t allocate_pinned(void** data, std::size_t nbytes, const char* function, unsigned flags) {
  constexpr unsigned kKnown = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if (data == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  *data = nullptr;
  if (nbytes == 0) return cudaSuccess;
  install_fault_handler();
  ++mutable_counters().allocations;
  *data = reinterpret_cast<void*>(allocate_host_memory(nbytes, function, flags)->address);
  return cudaSuccess;
}

// The pinned allocation that begins at data; nullptr if there is none.
const Allocation* pinned_allocation(const void* data, bool registered) {
  const Allocation* found = find_allocation(data);
  const bool matches = found != nullptr && found->device == kHost && (found->region == 0) == registered &&
                       found->address == reinterpret_cast<std::uintptr_t>(data);
  return matches ? found : nullptr;
}

}  // namespace

CUDART cudaError_t cudaMalloc(void** data, std::size_t nbytes) {
  return call_unsafe("cudaMalloc", [&] {
    if (data == nullptr) return cudaErrorInvalidValue;
    *data = nullptr;
    if (nbytes == 0) return cudaSuccess;
    install_fault_handler();
    const Allocation* allocation = allocate_device_memory(current_device(), nbytes, "cudaMalloc", nullptr);
    if (allocation == nullptr) return cudaErrorMemoryAllocation;
    ++mutable_counters().allocations;
    *data = reinterpret_cast<void*>(allocation->address);
    return cudaSuccess;
  });
}

// Waits for the device, as real hardware does.
CUDART cudaError_t cudaFree(void* data) {
  return destroy("cudaFree", [&] {
    if (data == nullptr) return cudaSuccess;
    const Allocation* allocation = find_allocation(data);
    if (allocation == nullptr || allocation->device == kHost || allocation->free_queued ||
        allocation->address != reinterpret_cast<std::uintptr_t>(data)) {
      return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
    const int owner = allocation->device;
    count_host_wait();
    wait_for_device(owner);
    ++mutable_counters().frees;
    free_memory(find_allocation(data));
    return after_wait(owner);
  });
}

CUDART cudaError_t cudaHostAlloc(void** data, std::size_t nbytes, unsigned flags) {
  return call_unsafe("cudaHostAlloc", [&] { return allocate_pinned(data, nbytes, "cudaHostAlloc", flags); });
}

CUDART cudaError_t cudaMallocHost(void** data, std::size_t nbytes) {
  return call_unsafe("cudaMallocHost", [&] { return allocate_pinned(data, nbytes, "cudaMallocHost", 0); });
}

CUDART cudaError_t cudaFreeHost(void* data) {
  return destroy("cudaFreeHost", [&] {
    if (data == nullptr) return cudaSuccess;
    if (pinned_allocation(data, false) == nullptr) return cudaErrorInvalidValue;
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
    count_host_wait();
    wait_for_device(-1);
    ++mutable_counters().frees;
    free_memory(pinned_allocation(data, false));
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaHostRegister(void* data, std::size_t nbytes, unsigned flags) {
  return call_unsafe("cudaHostRegister", [&] {
    if (data == nullptr || nbytes == 0 || is_device_pointer(data)) return cudaErrorInvalidValue;
    if (find_allocation(data) != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
    ++mutable_counters().allocations;
    register_host_memory(data, nbytes, flags);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaHostUnregister(void* data) {
  return destroy("cudaHostUnregister", [&] {
    if (data == nullptr) return cudaErrorInvalidValue;
    if (pinned_allocation(data, true) == nullptr) return cudaErrorHostMemoryNotRegistered;
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
    count_host_wait();
    wait_for_device(-1);
    ++mutable_counters().frees;
    free_memory(pinned_allocation(data, true));
    return cudaSuccess;
  });
}

// With unified addressing a device uses pinned memory at the host's address.
CUDART cudaError_t cudaHostGetDevicePointer(void** device_data, void* host_data, unsigned flags) {
  return call("cudaHostGetDevicePointer", [&] {
    if (device_data == nullptr || flags != 0) return cudaErrorInvalidValue;
    const Allocation* allocation = find_allocation(host_data);
    if (allocation == nullptr || allocation->device != kHost) return cudaErrorInvalidValue;
    *device_data = host_data;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaHostGetFlags(unsigned* flags, void* host_data) {
  return ask([&] {
    const Allocation* allocation = find_allocation(host_data);
    if (flags == nullptr || allocation == nullptr || allocation->device != kHost) return cudaErrorInvalidValue;
    *flags = allocation->flags | cudaHostAllocMapped;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return ask([&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    *attributes = cudaPointerAttributes{};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    const Allocation* allocation = find_allocation(data);
    if (allocation == nullptr) return is_device_pointer(data) ? cudaErrorInvalidValue : cudaSuccess;
    attributes->devicePointer = const_cast<void*>(data);
    if (allocation->device == kHost) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = current_device();
      attributes->hostPointer = const_cast<void*>(data);
    } else {
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = allocation->device;
    }
    return cudaSuccess;
  });
}
