// A batch from the resident data set. Pointers are device memory. Does not wait.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "kernels/device/gather_images_types.cuh"

namespace heddle::cuda {

// One kernel. T: float, __nv_bfloat16.
template <class T>
void gather_images(const GatherBuffers<T>& buffers, const GatherSettings& settings, cudaStream_t stream);

}  // namespace heddle::cuda
