// Batch norm of (rows, channels) arrays. Pointers are device memory. Nothing waits; the caller brings scratch and
// tickets. T: float, __nv_bfloat16. rows may be 0; channels are 1 at least.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/batch_norm_types.cuh"

namespace heddle::cuda {

struct NormSize {
  std::int64_t rows = 0, channels = 0;
};
struct NormScratch {
  void* data = nullptr;         // norm_scratch_nbytes, aligned to 16 bytes
  unsigned* tickets = nullptr;  // kMaxTickets of matrix_kernels.h
};
std::size_t norm_scratch_nbytes(const NormSize& size);

// All of batch_norm_forward: one kernel, or two where blocks share the rows and neither call.sums nor the running
// statistics say what they would find.
template <class T>
void norm_forward(const NormForwardCall<T>& call, const NormSize& size, const NormScratch& scratch,
                  cudaStream_t stream);
// call.exchange. One kernel.
template <class T>
void norm_statistics(const NormStatisticsCall<T>& call, const NormSize& size, const NormScratch& scratch,
                     cudaStream_t stream);
// All gradients that are wanted: one kernel or two. Without call.sums.
template <class T>
void norm_backward(const NormBackwardCall<T>& call, const NormSize& size, const NormScratch& scratch,
                   cudaStream_t stream);
// dscale, dshift and call.exchange. One kernel.
template <class T>
void norm_backward_sums(const NormBackwardCall<T>& call, const NormSize& size, const NormScratch& scratch,
                        cudaStream_t stream);
// dx and daddend from call.sums. One kernel.
template <class T>
void norm_backward_data(const NormBackwardCall<T>& call, const NormSize& size, cudaStream_t stream);

}  // namespace heddle::cuda
