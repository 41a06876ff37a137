// Own kernels as host functions: raw device pointers, sizes and a stream. Implementations are the .cu files of this
// folder, which choose grid and block; callers are the primitives in kernels/cuda. Nothing here waits or allocates.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace heddle::cuda {

// y[i] = value. T: float, __nv_bfloat16, int, std::int64_t, unsigned char.
template <class T>
void fill(T* y, std::int64_t count, T value, cudaStream_t stream);

}  // namespace heddle::cuda
