// Own matrix products and convolutions as host functions: raw device pointers, sizes and a stream. Callers are
// kernels/cuda/{linear,matmul,conv2d}.cpp. Nothing here waits or allocates. T: float or __nv_bfloat16; sums are in
// float and in a fixed order, so that the same call gives the same bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/device/conv2d_geometry.cuh"

namespace heddle::cuda {

using device::ConvGeometry;

// How many blocks share the sum of one result, and what they need for it.
struct SplitPlan {
  int splits = 1;
  std::int64_t partial_floats = 0;
  std::int64_t tickets = 0;
};
// Memory for that. The tickets are zero, and are so again when the kernel is done; kernels that may run at the same
// time need their own.
struct SplitScratch {
  SplitPlan plan;
  float* partials = nullptr;
  unsigned* tickets = nullptr;
};
// The most tickets that a plan asks for.
inline constexpr std::int64_t kMaxTickets = 1024;

// y (=|+=) op(a) op(b) for each matrix of the batch: op(a) (rows,depth), op(b) (depth,columns), all dense; then bias
// and ReLU, or the mask of a ReLU in front. Sizes fit an int.
template <class T>
struct GemmCall {
  const T* a = nullptr;
  const T* b = nullptr;
  T* y = nullptr;
  std::int64_t batch = 1, rows = 0, columns = 0, depth = 0;
  bool transpose_a = false;      // a is (depth,rows)
  bool transpose_b = false;      // b is (columns,depth)
  const T* bias = nullptr;       // (columns), the same for the whole batch
  bool relu = false;             // of the result with its bias
  const T* relu_mask = nullptr;  // y's shape: the result is 0 where it is not positive, before it is added
  T* row_sums = nullptr;         // (rows) (=|+=) sums of op(a) over depth; batch 1
  bool add = false;
};
SplitPlan plan_gemm(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t depth);
template <class T>
void gemm(const GemmCall<T>& call, const SplitScratch& scratch, cudaStream_t stream);

// Convolutions of every shape as matrix products. Tensors and options as in Backend; null where undefined.
template <class T>
struct ConvForwardArguments {
  ConvGeometry g;
  const T* x = nullptr;
  const T* w = nullptr;
  const T* bias = nullptr;
  bool relu = false;
  T* y = nullptr;
};
template <class T>
struct ConvBackwardDataArguments {
  ConvGeometry g;
  const T* dy = nullptr;
  const T* w = nullptr;
  const T* relu_mask = nullptr;
  T* dx = nullptr;
  bool add = false;
};
template <class T>
struct ConvBackwardWeightArguments {
  ConvGeometry g;
  const T* x = nullptr;
  const T* dy = nullptr;
  T* dw = nullptr;
  T* db = nullptr;
  bool add = false;
};
SplitPlan plan_conv_forward(const ConvGeometry& g);
SplitPlan plan_conv_backward_data(const ConvGeometry& g);
SplitPlan plan_conv_backward_weight(const ConvGeometry& g);
template <class T>
void conv_forward(const ConvForwardArguments<T>& call, const SplitScratch& scratch, cudaStream_t stream);
template <class T>
void conv_backward_data(const ConvBackwardDataArguments<T>& call, const SplitScratch& scratch, cudaStream_t stream);
template <class T>
void conv_backward_weight(const ConvBackwardWeightArguments<T>& call, const SplitScratch& scratch, cudaStream_t stream);

// Convolutions with few channels, without groups. Whether the kernels take a shape: a band of the image and the weights
// must fit into shared memory.
bool direct_conv_forward_takes(const ConvGeometry& g);
bool direct_conv_backward_data_takes(const ConvGeometry& g);
bool direct_conv_backward_weight_takes(const ConvGeometry& g);
template <class T>
void direct_conv_forward(const ConvForwardArguments<T>& call, cudaStream_t stream);
template <class T>
void direct_conv_backward_data(const ConvBackwardDataArguments<T>& call, cudaStream_t stream);
SplitPlan plan_direct_conv_backward_weight(const ConvGeometry& g);
template <class T>
void direct_conv_backward_weight(const ConvBackwardWeightArguments<T>& call, const SplitScratch& scratch,
                                 cudaStream_t stream);

}  // namespace heddle::cuda
