// Kernels of the tests of the simulated CUDA: right ones, and ones with a planted fault.
#pragma once

#include <cuda_runtime.h>

namespace cudasim::test {

__global__ void add_vectors(const float* a, const float* b, float* c, int n);
// Adds value to the first n elements.
__global__ void add_value(float* x, float value, int n);
__global__ void copy_values(const float* from, float* to, int n);
// Sum of n values into *total, with shuffles, shared memory and an atomic.
__global__ void sum_values(const float* x, float* total, int n);
// The same without the barrier between warps.
__global__ void sum_values_without_barrier(const float* x, float* total, int n);
// Reverses the block's elements through dynamic shared memory.
__global__ void reverse_in_shared(float* x);

}  // namespace cudasim::test
