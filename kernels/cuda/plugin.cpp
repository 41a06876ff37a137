// The one exported entry of the plugin libheddle_cuda.so.
#include <memory>

#include "kernels/cuda/cuda_backend.h"

extern "C" __attribute__((visibility("default"))) int heddle_cuda_abi() { return 1; }
