// Random numbers and dropout. Pointers are device memory of `count` elements; T: float, __nv_bfloat16. Nothing waits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/philox_stream.cuh"

namespace heddle::cuda {

// y[i] (=|+=) x[i] * keep / (1 - p); y may be x.
template <class T>
void dropout(const T* x, std::int64_t count, double p, const PhiloxStream& stream, T* y, bool add, cudaStream_t queue);

// y[i] = low + (high - low) u, u uniform in [0,1).
template <class T>
void random_uniform(double low, double high, const PhiloxStream& stream, T* y, std::int64_t count, cudaStream_t queue);

// y[i] = mean + stddev n, n normal with mean 0 and deviation 1.
template <class T>
void random_normal(double mean, double stddev, const PhiloxStream& stream, T* y, std::int64_t count,
                   cudaStream_t queue);

}  // namespace heddle::cuda
