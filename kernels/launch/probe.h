// Whether the kernels of this plugin can run on a GPU at all.
#pragma once

#include <cuda_runtime_api.h>

namespace heddle::cuda {

// cudaSuccess if the plugin holds code for the current device, or code that the driver can translate for it. Other
// errors are the device's own.
cudaError_t find_kernel_image();

}  // namespace heddle::cuda
