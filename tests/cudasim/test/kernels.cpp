// Kernels of the tests; see the header.
#include "tests/cudasim/test/kernels.h"

namespace cudasim::test {
namespace {

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

template <bool kBarrier>
__device__ void sum_block(const float* x, float* total, int n) {
  __shared__ float warp_totals[32];
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float value = 0.0f;
  for (int i = thread; i < n; i += static_cast<int>(gridDim.x * blockDim.x)) value += x[i];
  value = warp_sum(value);
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  if (lane == 0) warp_totals[warp] = value;
  if (kBarrier) __syncthreads();
  if (warp == 0) {
    value = lane < blockDim.x / 32 ? warp_totals[lane] : 0.0f;
    value = warp_sum(value);
    if (lane == 0) atomicAdd(total, value);
  }
}

}  // namespace

__global__ void add_vectors(const float* a, const float* b, float* c, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void add_value(float* x, float value, int n) {
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n;
       i += static_cast<int>(gridDim.x * blockDim.x)) {
    x[i] += value;
  }
}

__global__ void copy_values(const float* from, float* to, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] = from[i];
}

__global__ void sum_values(const float* x, float* total, int n) { sum_block<true>(x, total, n); }
__global__ void sum_values_without_barrier(const float* x, float* total, int n) { sum_block<false>(x, total, n); }

__global__ void reverse_in_shared(float* x) {
  HEDDLE_DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

}  // namespace cudasim::test
