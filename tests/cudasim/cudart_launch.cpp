// The CUDA runtime's functions for kernels: launches, attributes, occupancy.
#include <algorithm>
#include <optional>

#include "tests/cudasim/address_map.h"
#include "tests/cudasim/api.h"
#include "tests/cudasim/block.h"
#include "tests/cudasim/device_fault.h"
#include "tests/cudasim/device_limits.h"
#include "tests/cudasim/kernel_list.h"

using namespace cudasim;

namespace {

// What the next launch of the calling thread declared.
thread_local std::optional<std::vector<Access>> t_declared;

bool shape_is_possible(const LaunchShape& shape) {
  const unsigned block[3] = {shape.block.x, shape.block.y, shape.block.z};
  const unsigned grid[3] = {shape.grid.x, shape.grid.y, shape.grid.z};
  std::uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (block[i] == 0 || block[i] > kMaxBlock[i] || grid[i] == 0 || grid[i] > kMaxGrid[i]) return false;
    threads *= block[i];
  }
  return threads <= kMaxThreadsPerBlock;
}

// What a launch is when it runs.
struct Launch {
  std::shared_ptr<const KernelCall> call;
  LaunchShape shape;
  std::string name;
  int device = 0;
  std::optional<std::vector<Access>> declared;

  void run() const {
    install_fault_handler();
    std::string overrun;
    if (declared.has_value()) {
      DeclaredMap map(*declared, name.c_str());
      run_grid(*call->translated(map), shape, policy().thread_order, name.c_str());
      overrun = map.finish();
    } else {
      DeviceMap map(device, name.c_str());
      run_grid(*call->translated(map), shape, policy().thread_order, name.c_str());
      overrun = map.overrun();
    }
    if (overrun.empty()) return;
    set_last_report("kernel " + name + ": " + overrun);
    throw DeviceFault{};
  }
};

cudaError_t launch(const void* function, const LaunchShape& shape, void** arguments, cudaStream_t stream) {
  std::optional<std::vector<Access>> declared;
  std::swap(declared, t_declared);
  const Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (!shape_is_possible(shape)) return cudaErrorInvalidConfiguration;
  if (shape.dynamic_shared_nbytes > static_cast<std::size_t>(kernel->max_dynamic_shared)) return cudaErrorInvalidValue;
  const int index = device_of(stream);
  if (index < 0) return cudaErrorInvalidResourceHandle;
  if (!kernel->runs_here()) return cudaErrorNoKernelImageForDevice;
  const auto op = std::make_shared<Op>();
  op->name = kernel->name;
  op->kind = OpKind::kernel;
  const auto what = std::make_shared<const Launch>(
      Launch{kernel->factory(kernel->code, arguments), shape, kernel->name, index, declared});
  op->body = [what] { what->run(); };
  return enqueue_op(stream, op, declared.value_or(std::vector<Access>{}), function);
}

// Blocks of a kernel that fit on one multiprocessor.
int blocks_per_multiprocessor(int block_size, std::size_t dynamic_shared) {
  const int threads = (block_size + kWarpSize - 1) / kWarpSize * kWarpSize;
  const int by_threads = kMaxThreadsPerMultiprocessor / threads;
  const int by_registers = kRegisters / (kRegistersPerThread * threads);
  const auto by_shared = static_cast<int>(kSharedPerMultiprocessor / (dynamic_shared + kSharedReservedPerBlock));
  return std::min({kMaxBlocksPerMultiprocessor, by_threads, by_registers, by_shared});
}

}  // namespace

namespace cudasim {

CUDASIM_API void declare_next_launch(const std::vector<Access>& accesses) { t_declared = accesses; }

}  // namespace cudasim

CUDART cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                    std::size_t dynamic_shared, cudaStream_t stream) {
  return call("cudaLaunchKernel", [&] { return launch(function, {grid, block, dynamic_shared}, arguments, stream); });
}

// Launch attributes that only tune are ignored; those that change what a kernel may do are not supported.
CUDART cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return call("cudaLaunchKernelExC", [&] {
    if (config == nullptr) return cudaErrorInvalidValue;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      switch (config->attrs[i].id) {
        case cudaLaunchAttributeIgnore:
        case cudaLaunchAttributeAccessPolicyWindow:
        case cudaLaunchAttributePriority: break;
        default: return cudaErrorNotSupported;
      }
    }
    return launch(function, {config->gridDim, config->blockDim, config->dynamicSmemBytes}, arguments, config->stream);
  });
}

// Blocks run one after the other, so none can wait for another.
CUDART cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return call("cudaLaunchCooperativeKernel", [] { return cudaErrorNotSupported; });
}

CUDART cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return call("cudaFuncSetAttribute", [&] {
    Kernel* kernel = find_kernel(function);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize:
        if (value < 0 || value > kSharedPerBlockOptIn) return cudaErrorInvalidValue;
        kernel->max_dynamic_shared = std::max(value, kSharedPerBlock);
        return cudaSuccess;
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        if (value < -1 || value > 100) return cudaErrorInvalidValue;
        kernel->shared_carveout = value;
        return cudaSuccess;
      default: return cudaErrorInvalidValue;
    }
  });
}

CUDART cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
  return call("cudaFuncSetCacheConfig",
              [&] { return find_kernel(function) == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess; });
}

CUDART cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return call("cudaFuncGetAttributes", [&] {
    const Kernel* kernel = find_kernel(function);
    if (attributes == nullptr) return cudaErrorInvalidValue;
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (!kernel->runs_here()) return cudaErrorNoKernelImageForDevice;
    *attributes = cudaFuncAttributes{};
    attributes->maxThreadsPerBlock = kMaxThreadsPerBlock;
    attributes->numRegs = kRegistersPerThread;
    attributes->ptxVersion = device_capability();
    attributes->binaryVersion = device_capability();
    attributes->maxDynamicSharedSizeBytes = kernel->max_dynamic_shared;
    attributes->preferredShmemCarveout = kernel->shared_carveout;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaFuncGetName(const char** name, const void* function) {
  return call("cudaFuncGetName", [&] {
    const Kernel* kernel = find_kernel(function);
    if (name == nullptr) return cudaErrorInvalidValue;
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *name = kernel->name.c_str();
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                          int block_size, std::size_t dynamic_shared,
                                                                          unsigned) {
  return call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
    if (blocks == nullptr || block_size < 1 || block_size > kMaxThreadsPerBlock) return cudaErrorInvalidValue;
    const Kernel* kernel = find_kernel(function);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    const bool fits = dynamic_shared <= static_cast<std::size_t>(kernel->max_dynamic_shared);
    *blocks = fits ? blocks_per_multiprocessor(block_size, dynamic_shared) : 0;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_size,
                                                                 std::size_t dynamic_shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, dynamic_shared, 0);
}

CUDART cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* nbytes, const void* function, int blocks,
                                                             int block_size) {
  return call("cudaOccupancyAvailableDynamicSMemPerBlock", [&] {
    if (nbytes == nullptr || blocks < 1 || block_size < 1) return cudaErrorInvalidValue;
    const Kernel* kernel = find_kernel(function);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    const int share = kSharedPerMultiprocessor / blocks - kSharedReservedPerBlock;
    *nbytes = static_cast<std::size_t>(std::clamp(share, 0, kernel->max_dynamic_shared));
    return cudaSuccess;
  });
}
