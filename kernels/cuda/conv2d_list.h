// The implementations of convolution as rows of lists, best first, one list per pass. conv2d.cpp runs the first row
// that takes a call; tests run every row.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/split_tickets.h"

namespace heddle::cuda {

// What a row works with.
struct ConvPlace {
  Backend& backend;  // for the steps that other primitives do
  CudnnGraphs& graphs;
  SplitTickets& tickets;
  Device device;
  cudaStream_t stream;
};

// Tensors and options as in Backend. Nothing is empty, and all sizes fit an int.
struct ConvForwardCall {
  ConvGeometry g;
  const Tensor& x;
  const Tensor& w;
  const Tensor& bias;  // or undefined
  bool relu;
  Tensor& y;
};
struct ConvBackwardDataCall {
  ConvGeometry g;
  const Tensor& dy;
  const Tensor& w;
  const Tensor& relu_mask;  // or undefined
  Tensor& dx;
  WriteMode mode;
};
struct ConvBackwardWeightCall {
  ConvGeometry g;
  const Tensor& x;
  const Tensor& dy;
  Tensor& dw;
  Tensor* db;  // or nullptr
  WriteMode mode;
};

template <class Call>
struct ConvRow {
  const char* name;
  KernelSource source;
  bool (*supports)(const Call& call);                     // can it; a row may still find out in run() that it cannot
  bool (*wins)(const ConvGeometry& g);                    // should it, where a later row can too
  bool (*run)(const Call& call, const ConvPlace& place);  // false: nothing was queued
};
std::span<const ConvRow<ConvForwardCall>> conv_forward_rows();
std::span<const ConvRow<ConvBackwardDataCall>> conv_backward_data_rows();
std::span<const ConvRow<ConvBackwardWeightCall>> conv_backward_weight_rows();

// x (N,H,W,C), w (O,KH,KW,C/groups), y (N,OH,OW,O). Throws: NotSupported naming op for sizes past an int.
ConvGeometry conv_geometry(const char* op, const Shape& x, const Shape& w, const Shape& y, const Conv2dParams& params);

// conv2d_cudnn.cpp
bool conv_forward_cudnn_supports(const ConvForwardCall& call);
bool conv_backward_data_cudnn_supports(const ConvBackwardDataCall& call);
bool conv_backward_weight_cudnn_supports(const ConvBackwardWeightCall& call);
bool conv_forward_cudnn(const ConvForwardCall& call, const ConvPlace& place);
bool conv_backward_data_cudnn(const ConvBackwardDataCall& call, const ConvPlace& place);
bool conv_backward_weight_cudnn(const ConvBackwardWeightCall& call, const ConvPlace& place);

// conv2d_own.cpp: few channels without groups.
bool conv_forward_direct_supports(const ConvForwardCall& call);
bool conv_backward_data_direct_supports(const ConvBackwardDataCall& call);
bool conv_backward_weight_direct_supports(const ConvBackwardWeightCall& call);
bool conv_forward_direct(const ConvForwardCall& call, const ConvPlace& place);
bool conv_backward_data_direct(const ConvBackwardDataCall& call, const ConvPlace& place);
bool conv_backward_weight_direct(const ConvBackwardWeightCall& call, const ConvPlace& place);

// conv2d_own.cpp: every shape.
bool conv_forward_tiles(const ConvForwardCall& call, const ConvPlace& place);
bool conv_backward_data_tiles(const ConvBackwardDataCall& call, const ConvPlace& place);
bool conv_backward_weight_tiles(const ConvBackwardWeightCall& call, const ConvPlace& place);

}  // namespace heddle::cuda
