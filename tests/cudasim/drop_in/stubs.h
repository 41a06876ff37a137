// Launches with <<<...>>>, as nvcc compiles them. Of the tests of the drop-in libraries; the product launches by
// cudaLaunchKernel alone.
#pragma once

#include <cuda_runtime_api.h>

namespace cudasim::test {

// n <= 2
struct Rows {
  float* data[2];
  int n;
};

// Multiplies `length` elements of each row by the factor, with one block a row.
void scale_rows(const Rows& rows, int length, float factor, cudaStream_t stream);
// Adds the constants 10, 20, 30, 40 to the first four elements.
void add_constants(float* x);
// x[i] += by
void shift(int* x, int by, int n, int threads);
void shift(float* x, float by, int n, int threads);
// Reverses up to 1024 elements through dynamic shared memory.
void reverse(float* x, int n, int shared_nbytes);
// The error of asking for the attributes of the kernel behind reverse().
cudaError_t ask_for_kernel();

}  // namespace cudasim::test
