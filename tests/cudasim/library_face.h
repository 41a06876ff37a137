// What the functions of all simulated libraries need to ask before they make a handle. Used by cublas.cpp,
// cublaslt.cpp, cudnn.cpp and nccl*.cpp.
#pragma once

#include "tests/cudasim/machine.h"

namespace cudasim {

// Whether the calling thread's device exists and has not failed. Call with the lock held.
inline bool device_is_usable() {
  start_machine();
  return device_count() > 0 && sticky_error(current_device()) == cudaSuccess;
}

}  // namespace cudasim
