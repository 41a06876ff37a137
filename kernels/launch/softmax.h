// Softmax and cross-entropy over the last dimension. Pointers are device memory. Nothing waits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace heddle::cuda {

// y (rows, n) = softmax(x), or its logarithm. T: float, __nv_bfloat16.
template <class T>
void softmax_forward(const T* x, std::int64_t rows, std::int64_t n, bool log, T* y, cudaStream_t stream);
// dx (=|+=) gradient, from the result y.
template <class T>
void softmax_backward(const T* y, const T* dy, std::int64_t rows, std::int64_t n, bool log, T* dx, bool add,
                      cudaStream_t stream);

// As Backend::cross_entropy.
struct CrossEntropyArguments {
  const float* logits = nullptr;         // (rows, classes)
  const std::int64_t* labels = nullptr;  // (rows)
  const float* class_weight = nullptr;   // (classes), or null
  float* row_loss = nullptr;             // (rows), or null
  float* loss = nullptr;                 // the sum of the row losses, or null
  float* dlogits = nullptr;              // (rows, classes), or null
  float* stats = nullptr;                // (tail_slot::kCount), or null
  bool add_to_stats = true;              // else all of stats is overwritten
  std::int64_t rows = 0, classes = 0;
  std::int64_t ignore_index = 0;
  double smoothing = 0;
  void* scratch = nullptr;     // cross_entropy_scratch_nbytes() bytes, aligned to 16
  unsigned* ticket = nullptr;  // zero, and zero again afterwards; used by no other kernel meanwhile
};
// Bytes of scratch for a call with loss or stats; 0: none, and no ticket.
std::size_t cross_entropy_scratch_nbytes(std::int64_t rows, std::int64_t classes);
// One kernel.
void cross_entropy(const CrossEntropyArguments& arguments, cudaStream_t stream);

}  // namespace heddle::cuda
