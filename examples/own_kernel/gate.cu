// The kernels of gate.h. One thread does one element; the bytes of an element are 12 forward and up to 28 backward, so
// memory is the limit. Deterministic. Compiled by nvcc.
#include <cuda_runtime.h>

#include "gate.h"

namespace {

constexpr int kThreads = 256;

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ void write(float* to, float value, bool add) { *to = add ? *to + value : value; }

__global__ void gate(const float* a, const float* b, float* y, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a[i] * sigmoid(b[i]);
}

__global__ void gate_backward(const float* a, const float* b, const float* dy, GateGradients out, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float s = sigmoid(b[i]);
  if (out.da != nullptr) write(out.da + i, dy[i] * s, out.add_a);
  if (out.db != nullptr) write(out.db + i, dy[i] * a[i] * s * (1.0f - s), out.add_b);
}

// kernel<<<blocks, kThreads, 0, stream>>>(arguments...), by the function that every compiler of CUDA code knows.
template <class... Parameters>
const char* launch(void (*kernel)(Parameters...), std::int64_t n, void* stream, Parameters... arguments) {
  if (n == 0) return nullptr;
  void* pointers[] = {static_cast<void*>(&arguments)...};
  const dim3 blocks(static_cast<unsigned>((n + kThreads - 1) / kThreads));
  const cudaError_t error =
      cudaLaunchKernel(kernel, blocks, dim3(kThreads), pointers, 0, static_cast<cudaStream_t>(stream));
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* launch_gate(const float* a, const float* b, float* y, std::int64_t n, void* stream) {
  return launch(gate, n, stream, a, b, y, n);
}

const char* launch_gate_backward(const float* a, const float* b, const float* dy, const GateGradients& gradients,
                                 std::int64_t n, void* stream) {
  return launch(gate_backward, n, stream, a, b, dy, gradients, n);
}
