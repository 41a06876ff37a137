// The exception by which an operation that faulted is left. Only the simulator's core sees it.
#pragma once

#include <cuda_runtime_api.h>

namespace cudasim {

struct DeviceFault {
  cudaError_t error = cudaErrorIllegalAddress;
};

}  // namespace cudasim
