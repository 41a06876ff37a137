// Which GPU the calling thread's CUDA calls go to.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/launch/check.h"

namespace heddle::cuda {

// Makes a GPU the calling thread's current CUDA device, if it is not already. Throws: DeviceError.
inline void use_device(int index) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == index) return;
  HEDDLE_CUDA_CHECK(cudaSetDevice(index));
}

}  // namespace heddle::cuda
