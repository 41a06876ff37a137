// The implementations of batch norm as rows of lists, best first, one list per pass. batch_norm.cpp runs the first row
// that takes a call.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/backend/batch_norm.h"
#include "engine/backend/kernel_choice.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/split_tickets.h"
#include "kernels/launch/batch_norm.h"

namespace heddle::cuda {

// What a row works with.
struct NormPlace {
  CudnnGraphs& graphs;
  SplitTickets& tickets;
  Device device;
  cudaStream_t stream;
};

template <class Operands>
struct NormRow {
  const char* name;
  KernelSource source;
  bool (*supports)(const Operands& operands);               // can it; a row may still find out in run() that it cannot
  bool (*run)(Operands& operands, const NormPlace& place);  // false: nothing was queued
};

NormSize norm_size(const Tensor& x);

// batch_norm_cudnn.cpp: one kernel a pass, for channels that fill 16 bytes.
bool norm_training_cudnn_supports(const BatchNormForward& operands);
bool norm_inference_cudnn_supports(const BatchNormForward& operands);
bool norm_backward_cudnn_supports(const BatchNormBackward& operands);
bool norm_training_cudnn(BatchNormForward& operands, const NormPlace& place);
bool norm_inference_cudnn(BatchNormForward& operands, const NormPlace& place);
bool norm_backward_cudnn(BatchNormBackward& operands, const NormPlace& place);

}  // namespace heddle::cuda
