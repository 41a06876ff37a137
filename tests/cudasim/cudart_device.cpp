// The CUDA runtime's functions for devices: an H100-like chip with few multiprocessors, so that launches sized by
// occupancy stay small.
#include <cstdio>
#include <cstring>

#include "tests/cudasim/api.h"
#include "tests/cudasim/device_limits.h"

using namespace cudasim;

namespace {

bool is_device(int index) { return index >= 0 && index < device_count(); }

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp prop = {};
  std::snprintf(prop.name, sizeof(prop.name), "Simulated CUDA device (sm_%d)", device_capability());
  prop.uuid.bytes[0] = static_cast<char>(index + 1);
  prop.totalGlobalMem = device_memory_total();
  prop.sharedMemPerBlock = kSharedPerBlock;
  prop.regsPerBlock = kRegisters;
  prop.warpSize = kWarpSize;
  prop.memPitch = 2147483647;
  prop.maxThreadsPerBlock = kMaxThreadsPerBlock;
  for (int i = 0; i < 3; ++i) {
    prop.maxThreadsDim[i] = static_cast<int>(kMaxBlock[i]);
    prop.maxGridSize[i] = static_cast<int>(kMaxGrid[i]);
  }
  prop.totalConstMem = 64 << 10;
  prop.major = device_capability() / 10;
  prop.minor = device_capability() % 10;
  prop.textureAlignment = 512;
  prop.texturePitchAlignment = 32;
  prop.multiProcessorCount = kMultiprocessors;
  prop.canMapHostMemory = 1;
  prop.concurrentKernels = 1;
  prop.pciBusID = index + 1;
  prop.asyncEngineCount = 3;
  prop.unifiedAddressing = 1;
  prop.memoryBusWidth = 5120;
  prop.l2CacheSize = 50 << 20;
  prop.maxThreadsPerMultiProcessor = kMaxThreadsPerMultiprocessor;
  prop.streamPrioritiesSupported = 1;
  prop.sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
  prop.regsPerMultiprocessor = kRegisters;
  prop.computePreemptionSupported = 1;
  prop.canUseHostPointerForRegisteredMem = 1;
  prop.sharedMemPerBlockOptin = kSharedPerBlockOptIn;
  prop.maxBlocksPerMultiProcessor = kMaxBlocksPerMultiprocessor;
  prop.reservedSharedMemPerBlock = kSharedReservedPerBlock;
  prop.hostRegisterSupported = 1;
  prop.memoryPoolsSupported = 1;
  return prop;
}

cudaError_t attribute_of(int index, cudaDeviceAttr attribute, int* value) {
  const cudaDeviceProp prop = properties_of(index);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = prop.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = prop.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = prop.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = prop.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = prop.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = prop.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = prop.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = kSharedPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kSharedPerBlockOptIn; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = kSharedPerMultiprocessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = kSharedReservedPerBlock; break;
    case cudaDevAttrWarpSize: *value = kWarpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = kRegisters; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = kRegisters; break;
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = kMaxThreadsPerMultiprocessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = kMaxBlocksPerMultiprocessor; break;
    case cudaDevAttrClockRate: *value = 1'755'000; break;
    case cudaDevAttrMemoryClockRate: *value = 2'619'000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = prop.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = prop.l2CacheSize; break;
    case cudaDevAttrComputeCapabilityMajor: *value = prop.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = prop.minor; break;
    case cudaDevAttrCanMapHostMemory: *value = prop.canMapHostMemory; break;
    case cudaDevAttrConcurrentKernels: *value = prop.concurrentKernels; break;
    case cudaDevAttrAsyncEngineCount: *value = prop.asyncEngineCount; break;
    case cudaDevAttrUnifiedAddressing: *value = prop.unifiedAddressing; break;
    case cudaDevAttrStreamPrioritiesSupported: *value = prop.streamPrioritiesSupported; break;
    case cudaDevAttrMemoryPoolsSupported: *value = prop.memoryPoolsSupported; break;
    case cudaDevAttrHostRegisterSupported: *value = prop.hostRegisterSupported; break;
    case cudaDevAttrPciBusId: *value = prop.pciBusID; break;
    case cudaDevAttrPciDeviceId: *value = prop.pciDeviceID; break;
    case cudaDevAttrPciDomainId: *value = prop.pciDomainID; break;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrEccEnabled: *value = 0; break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace

CUDART cudaError_t cudaGetDeviceCount(int* count) {
  return ask([&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    if (const cudaError_t error = injected("cudaGetDeviceCount"); error != cudaSuccess) return error;
    *count = device_count();
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaSetDevice(int index) {
  return ask([&] {
    if (!is_device(index)) return cudaErrorInvalidDevice;
    if (const cudaError_t error = injected("cudaSetDevice"); error != cudaSuccess) return error;
    set_current_device(index);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaInitDevice(int index, unsigned, unsigned) {
  return call("cudaInitDevice", [&] { return is_device(index) ? cudaSuccess : cudaErrorInvalidDevice; });
}

CUDART cudaError_t cudaGetDevice(int* index) {
  return ask([&] {
    if (index == nullptr) return cudaErrorInvalidValue;
    *index = current_device();
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int index) {
  return ask([&] {
    if (prop == nullptr) return cudaErrorInvalidValue;
    if (!is_device(index)) return cudaErrorInvalidDevice;
    if (const cudaError_t error = injected("cudaGetDeviceProperties"); error != cudaSuccess) return error;
    *prop = properties_of(index);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  return ask([&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!is_device(index)) return cudaErrorInvalidDevice;
    return attribute_of(index, attribute, value);
  });
}

CUDART cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int index) {
  return ask([&] {
    if (text == nullptr || length < 13) return cudaErrorInvalidValue;
    if (!is_device(index)) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", static_cast<unsigned>(index + 1));
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDriverGetVersion(int* version) {
  const Lock lock;
  start_machine();
  if (version == nullptr) return set_last_error(cudaErrorInvalidValue);
  *version = device_count() == 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

CUDART cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return set_last_error(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

CUDART cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [&] {
    const int index = current_device();
    if (const cudaError_t error = check_device_wait(index); error != cudaSuccess) return error;
    count_host_wait();
    wait_for_device(index);
    return after_wait(index);
  });
}

CUDART cudaError_t cudaDeviceReset() {
  return destroy("cudaDeviceReset", [&] {
    reset_device(current_device());
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaSetDeviceFlags(unsigned) {
  return call("cudaSetDeviceFlags", [] { return cudaSuccess; });
}

CUDART cudaError_t cudaMemGetInfo(std::size_t* free_nbytes, std::size_t* total_nbytes) {
  return call("cudaMemGetInfo", [&] {
    if (free_nbytes == nullptr || total_nbytes == nullptr) return cudaErrorInvalidValue;
    const std::size_t total = device_memory_total();
    const std::size_t used = device_memory_used(current_device());
    *total_nbytes = total;
    *free_nbytes = used < total ? total - used : 0;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDeviceCanAccessPeer(int* answer, int index, int peer) {
  return ask([&] {
    if (answer == nullptr) return cudaErrorInvalidValue;
    if (!is_device(index) || !is_device(peer)) return cudaErrorInvalidDevice;
    *answer = index != peer ? 1 : 0;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call("cudaDeviceEnablePeerAccess", [&] {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!is_device(peer) || peer == current_device()) return cudaErrorInvalidDevice;
    bool& enabled = device(current_device()).peer_enabled[peer];
    if (enabled) return cudaErrorPeerAccessAlreadyEnabled;
    enabled = true;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return destroy("cudaDeviceDisablePeerAccess", [&] {
    if (!is_device(peer) || peer == current_device()) return cudaErrorInvalidDevice;
    bool& enabled = device(current_device()).peer_enabled[peer];
    if (!enabled) return cudaErrorPeerAccessNotEnabled;
    enabled = false;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return ask([&] {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return cudaSuccess;
  });
}
