#include "kernels/launch/probe.h"

#include "kernels/launch/launch.h"

namespace heddle::cuda {

__global__ void probe_kernel(int* found) { *found = 1; }

cudaError_t find_kernel_image() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, probe_kernel);
}

}  // namespace heddle::cuda
