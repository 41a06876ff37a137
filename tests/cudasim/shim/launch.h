// Overloads of CUDA functions that take a kernel. They are better matches than the toolkit's own for a typed kernel,
// which they make known to the simulator before they call the CUDA function.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/cudasim/shim/kernel_call.h"

namespace cudasim {

template <class... Parameters>
const void* known_kernel(void (*kernel)(Parameters...)) {
  const void* address = reinterpret_cast<const void*>(kernel);
  register_kernel(address, &TypedKernelCall<Parameters...>::make);
  return address;
}

}  // namespace cudasim

template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t dynamic_shared = 0, cudaStream_t stream = nullptr) {
  return ::cudaLaunchKernel(cudasim::known_kernel(kernel), grid, block, arguments, dynamic_shared, stream);
}

template <class... Parameters>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), void** arguments) {
  return ::cudaLaunchKernelExC(config, cudasim::known_kernel(kernel), arguments);
}

template <class... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                                        std::size_t dynamic_shared = 0, cudaStream_t stream = nullptr) {
  return ::cudaLaunchCooperativeKernel(cudasim::known_kernel(kernel), grid, block, arguments, dynamic_shared, stream);
}

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(cudasim::known_kernel(kernel), attribute, value);
}

template <class... Parameters>
cudaError_t cudaFuncSetCacheConfig(void (*kernel)(Parameters...), cudaFuncCache config) {
  return ::cudaFuncSetCacheConfig(cudasim::known_kernel(kernel), config);
}

template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return ::cudaFuncGetAttributes(attributes, cudasim::known_kernel(kernel));
}

template <class... Parameters>
cudaError_t cudaFuncGetName(const char** name, void (*kernel)(Parameters...)) {
  return ::cudaFuncGetName(name, cudasim::known_kernel(kernel));
}

template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(Parameters...), int block_size,
                                                          std::size_t dynamic_shared) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, cudasim::known_kernel(kernel), block_size,
                                                         dynamic_shared);
}

template <class... Parameters>
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* nbytes, void (*kernel)(Parameters...), int blocks,
                                                      int block_size) {
  return ::cudaOccupancyAvailableDynamicSMemPerBlock(nbytes, cudasim::known_kernel(kernel), blocks, block_size);
}

// The block size with the most threads in flight, as nvcc's header computes it.
template <class... Parameters>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* min_grid_size, int* block_size, void (*kernel)(Parameters...),
                                               std::size_t dynamic_shared = 0, int block_size_limit = 0) {
  const void* address = cudasim::known_kernel(kernel);
  int device = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  const int limit = block_size_limit > 0 && block_size_limit < 1024 ? block_size_limit : 1024;
  int best_threads = 0;
  for (int candidate = limit; candidate > 0 && error == cudaSuccess; candidate -= 32) {
    int blocks = 0;
    error = ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, address, candidate, dynamic_shared);
    if (blocks * candidate > best_threads) {
      best_threads = blocks * candidate;
      *block_size = candidate;
      *min_grid_size = blocks * multiprocessors;
    }
  }
  return error;
}
