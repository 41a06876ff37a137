// The CUDA runtime's functions for memory in stream order, and memory pools.
//
// The address is given out at the call. The memory is filled afresh when the stream reaches the allocation, so that a
// use in another stream that does not wait for it shows, and is gone when the stream reaches the free.
#include <algorithm>
#include <map>

#include "tests/cudasim/api.h"
#include "tests/cudasim/pools.h"

using namespace cudasim;

namespace {

struct Pool {
  int device = 0;
  bool is_default = false;
  std::uint64_t used = 0;
  std::uint64_t used_high = 0;
  std::map<cudaMemPoolAttr, std::uint64_t> attributes;
};

HandleTable<Pool>& pools() {
  static auto* table = new HandleTable<Pool>(0x55);
  return *table;
}

// Default and current pool of each device, made when first asked for.
cudaMemPool_t g_default[kMaxDevices] = {};
cudaMemPool_t g_current[kMaxDevices] = {};

cudaMemPool_t default_pool(int index) {
  if (g_default[index] == nullptr) {
    const auto pool = std::make_shared<Pool>();
    pool->device = index;
    pool->is_default = true;
    pools().add(pool, &g_default[index]);
    g_current[index] = g_default[index];
  }
  return g_default[index];
}

cudaMemPool_t current_pool(int index) {
  default_pool(index);
  return g_current[index];
}

bool is_device(int index) { return index >= 0 && index < device_count(); }

cudaError_t allocate(void** data, std::size_t nbytes, cudaMemPool_t pool_handle, cudaStream_t stream_handle,
                     const char* function) {
  const std::shared_ptr<Stream> stream = find_stream(stream_handle);
  const std::shared_ptr<Pool> pool = pools().find(pool_handle);
  if (data == nullptr || pool == nullptr) return cudaErrorInvalidValue;
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  *data = nullptr;
  if (nbytes == 0) return cudaSuccess;
  if (stream->capture != nullptr) return refuse(*stream, cudaErrorStreamCaptureUnsupported);
  install_fault_handler();
  const Allocation* allocation = allocate_device_memory(pool->device, nbytes, function, pool_handle);
  if (allocation == nullptr) return cudaErrorMemoryAllocation;
  ++mutable_counters().allocations;
  pool->used += nbytes;
  pool->used_high = std::max(pool->used_high, pool->used);
  const OpPtr op = make_marker(function, stream->device);
  void* const address = reinterpret_cast<void*>(allocation->address);
  op->body = [address] {
    if (const Allocation* found = find_allocation(address); found != nullptr) make_fresh(*found);
  };
  if (const cudaError_t error = queue(stream, op, nullptr); error != cudaSuccess) {
    pool->used -= nbytes;
    free_memory(allocation);
    return error;
  }
  *data = address;
  return cudaSuccess;
}

void end_allocation(void* address) {
  const Allocation* allocation = find_allocation(address);
  if (allocation == nullptr) return;
  if (const std::shared_ptr<Pool> pool = pools().find(allocation->pool)) pool->used -= allocation->nbytes;
  free_memory(allocation);
}

}  // namespace

namespace cudasim {

void drop_pools_of(int index) {
  std::vector<const void*> gone;
  for (const auto& [handle, pool] : pools().all()) {
    if (pool->device == index) gone.push_back(reinterpret_cast<const void*>(handle));
  }
  for (const void* handle : gone) pools().remove(handle);
  g_default[index] = nullptr;
  g_current[index] = nullptr;
}

void add_pool_leaks(std::vector<Leak>& found) {
  for (const auto& [handle, pool] : pools().all()) {
    if (!pool->is_default) found.push_back({"memory pool", "of device " + std::to_string(pool->device)});
  }
}

}  // namespace cudasim

CUDART cudaError_t cudaMallocAsync(void** data, std::size_t nbytes, cudaStream_t stream) {
  return call("cudaMallocAsync", [&] {
    const int index = device_of(stream);
    if (index < 0) return cudaErrorInvalidResourceHandle;
    return allocate(data, nbytes, current_pool(index), stream, "cudaMallocAsync");
  });
}

CUDART cudaError_t cudaMallocFromPoolAsync(void** data, std::size_t nbytes, cudaMemPool_t pool, cudaStream_t stream) {
  return call("cudaMallocFromPoolAsync",
              [&] { return allocate(data, nbytes, pool, stream, "cudaMallocFromPoolAsync"); });
}

CUDART cudaError_t cudaFreeAsync(void* data, cudaStream_t handle) {
  return destroy("cudaFreeAsync", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (data == nullptr) return cudaErrorInvalidValue;
    const Allocation* allocation = find_allocation(data);
    if (allocation == nullptr || allocation->device == kHost || allocation->free_queued ||
        allocation->address != reinterpret_cast<std::uintptr_t>(data)) {
      return cudaErrorInvalidValue;
    }
    if (stream->capture != nullptr) return refuse(*stream, cudaErrorStreamCaptureUnsupported);
    const OpPtr op = make_marker("cudaFreeAsync", stream->device);
    op->body = [data] { end_allocation(data); };
    if (const cudaError_t error = queue(stream, op, nullptr); error != cudaSuccess) return error;
    ++mutable_counters().frees;
    if (const Allocation* still = find_allocation(data)) still->free_queued = true;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int index) {
  return call("cudaDeviceGetDefaultMemPool", [&] {
    if (pool == nullptr) return cudaErrorInvalidValue;
    if (!is_device(index)) return cudaErrorInvalidDevice;
    *pool = default_pool(index);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int index) {
  return call("cudaDeviceGetMemPool", [&] {
    if (pool == nullptr) return cudaErrorInvalidValue;
    if (!is_device(index)) return cudaErrorInvalidDevice;
    *pool = current_pool(index);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDeviceSetMemPool(int index, cudaMemPool_t handle) {
  return call("cudaDeviceSetMemPool", [&] {
    if (!is_device(index)) return cudaErrorInvalidDevice;
    default_pool(index);
    const std::shared_ptr<Pool> pool = pools().find(handle);
    if (pool == nullptr || pool->device != index) return cudaErrorInvalidValue;
    g_current[index] = handle;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaMemPoolCreate(cudaMemPool_t* handle, const cudaMemPoolProps* props) {
  return call("cudaMemPoolCreate", [&] {
    if (handle == nullptr || props == nullptr || props->allocType != cudaMemAllocationTypePinned ||
        props->location.type != cudaMemLocationTypeDevice || !is_device(props->location.id)) {
      return cudaErrorInvalidValue;
    }
    const auto pool = std::make_shared<Pool>();
    pool->device = props->location.id;
    pools().add(pool, handle);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
  return destroy("cudaMemPoolDestroy", [&] {
    const std::shared_ptr<Pool> pool = pools().find(handle);
    if (pool == nullptr || pool->is_default) return cudaErrorInvalidValue;
    if (g_current[pool->device] == handle) g_current[pool->device] = g_default[pool->device];
    pools().remove(handle);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, std::size_t) {
  return call("cudaMemPoolTrimTo", [&] { return pools().find(handle) ? cudaSuccess : cudaErrorInvalidValue; });
}

CUDART cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return call("cudaMemPoolSetAttribute", [&] {
    const std::shared_ptr<Pool> pool = pools().find(handle);
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    switch (attribute) {
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        pool->attributes[attribute] = static_cast<std::uint64_t>(*static_cast<int*>(value));
        return cudaSuccess;
      case cudaMemPoolAttrReleaseThreshold:
        pool->attributes[attribute] = *static_cast<std::uint64_t*>(value);
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh:
      case cudaMemPoolAttrReservedMemHigh:
        if (*static_cast<std::uint64_t*>(value) != 0) return cudaErrorInvalidValue;
        pool->used_high = pool->used;
        return cudaSuccess;
      default: return cudaErrorInvalidValue;
    }
  });
}

CUDART cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return call("cudaMemPoolGetAttribute", [&] {
    const std::shared_ptr<Pool> pool = pools().find(handle);
    if (pool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    switch (attribute) {
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies: {
        const auto found = pool->attributes.find(attribute);
        *static_cast<int*>(value) = found == pool->attributes.end() ? 1 : static_cast<int>(found->second);
        return cudaSuccess;
      }
      case cudaMemPoolAttrReleaseThreshold:
        *static_cast<std::uint64_t*>(value) = pool->attributes[attribute];
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemCurrent:
      case cudaMemPoolAttrReservedMemCurrent: *static_cast<std::uint64_t*>(value) = pool->used; return cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh:
      case cudaMemPoolAttrReservedMemHigh: *static_cast<std::uint64_t*>(value) = pool->used_high; return cudaSuccess;
      default: return cudaErrorInvalidValue;
    }
  });
}
