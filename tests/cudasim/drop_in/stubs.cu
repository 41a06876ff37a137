#include "tests/cudasim/drop_in/stubs.h"

#include <cuda_runtime.h>

#include "kernels/device/dynamic_shared.cuh"

namespace cudasim::test {

__constant__ float kConstants[4] = {10, 20, 30, 40};

template <class T>
__global__ void shift_kernel(T* x, T by, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] += by;
}

__global__ void reverse_kernel(float* x) {
  HEDDLE_DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

namespace {

__global__ void scale_kernel(Rows rows, int length, float factor) {
  float* const row = rows.data[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < length; i += static_cast<int>(blockDim.x)) row[i] *= factor;
}

__global__ void constants_kernel(float* x) { x[threadIdx.x] += kConstants[threadIdx.x]; }

}  // namespace

// The host's compiler compiles this file for the kernels alone.
#if defined(__CUDACC__)

void scale_rows(const Rows& rows, int length, float factor, cudaStream_t stream) {
  scale_kernel<<<static_cast<unsigned>(rows.n), 32, 0, stream>>>(rows, length, factor);
}

void add_constants(float* x) { constants_kernel<<<1, 4>>>(x); }

void shift(int* x, int by, int n, int threads) { shift_kernel<<<(n + threads - 1) / threads, threads>>>(x, by, n); }
void shift(float* x, float by, int n, int threads) { shift_kernel<<<(n + threads - 1) / threads, threads>>>(x, by, n); }

void reverse(float* x, int n, int shared_nbytes) {
  reverse_kernel<<<1, static_cast<unsigned>(n), static_cast<unsigned>(shared_nbytes)>>>(x);
}

cudaError_t ask_for_kernel() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reverse_kernel);
}

#endif

}  // namespace cudasim::test
