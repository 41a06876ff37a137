// Convolution by cuDNN's graphs.
#include <array>
#include <cstdint>

#include "kernels/cuda/conv2d_list.h"

namespace heddle::cuda {
namespace {

bool is_aligned(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.raw_data()) % 16 == 0; }
bool is_float(const Tensor& tensor) { return tensor.dtype() == DType::f32 || tensor.dtype() == DType::bf16; }

GraphKey key(GraphKind kind, DType dtype, std::int32_t flags, const ConvGeometry& g) {
  return {.kind = kind, .bf16 = dtype == DType::bf16 ? 1 : 0, .flags = flags, .geometry = g};
}
GraphTensor read(GraphRole role, const Tensor& tensor) { return {role, tensor.raw_data(), tensor.nbytes()}; }
GraphTensor written(GraphRole role, Tensor& tensor, bool add) {
  return {role, tensor.mutable_raw_data(), tensor.nbytes(), add, true};
}

}  // namespace

bool conv_forward_cudnn_supports(const ConvForwardCall& call) {
  return is_float(call.x) && is_aligned(call.x) && is_aligned(call.w) && is_aligned(call.y) && is_aligned(call.bias);
}
bool conv_backward_data_cudnn_supports(const ConvBackwardDataCall& call) {
  return is_float(call.dy) && is_aligned(call.dy) && is_aligned(call.w) && is_aligned(call.dx);
}
bool conv_backward_weight_cudnn_supports(const ConvBackwardWeightCall& call) {
  return is_float(call.x) && is_aligned(call.x) && is_aligned(call.dy) && is_aligned(call.dw);
}

bool conv_forward_cudnn(const ConvForwardCall& call, const ConvPlace& place) {
  const bool bias = call.bias.defined();
  const std::int32_t flags = (bias ? graph_flag::kBias : 0) | (call.relu ? graph_flag::kRelu : 0);
  const std::array tensors = {read(GraphRole::x, call.x), read(GraphRole::w, call.w),
                              written(GraphRole::y, call.y, false), read(GraphRole::bias, bias ? call.bias : call.w)};
  return place.graphs.run("cudnn_conv_forward", key(GraphKind::conv_forward, call.x.dtype(), flags, call.g),
                          std::span(tensors).first(bias ? 4 : 3), place.stream);
}

// The mask needs a kernel of its own: the product goes into fresh memory then.
bool conv_backward_data_cudnn(const ConvBackwardDataCall& call, const ConvPlace& place) {
  const bool mask = call.relu_mask.defined(), add = call.mode == WriteMode::add && !mask;
  Tensor fresh = mask ? Tensor::empty_like(call.dx) : call.dx;
  const std::array tensors = {read(GraphRole::dy, call.dy), read(GraphRole::w, call.w),
                              written(GraphRole::dx, fresh, add)};
  if (!place.graphs.run("cudnn_conv_backward_data",
                        key(GraphKind::conv_backward_data, call.dy.dtype(), add ? graph_flag::kAdd : 0, call.g),
                        tensors, place.stream)) {
    return false;
  }
  if (mask) {
    place.backend.unary_backward(UnaryOp::relu, Tensor(), call.relu_mask, fresh, 0, 0, call.dx, call.mode);
  }
  return true;
}

bool conv_backward_weight_cudnn(const ConvBackwardWeightCall& call, const ConvPlace& place) {
  const bool add = call.mode == WriteMode::add;
  const std::array tensors = {read(GraphRole::x, call.x), read(GraphRole::dy, call.dy),
                              written(GraphRole::dw, call.dw, add)};
  if (!place.graphs.run("cudnn_conv_backward_weight",
                        key(GraphKind::conv_backward_weight, call.x.dtype(), add ? graph_flag::kAdd : 0, call.g),
                        tensors, place.stream)) {
    return false;
  }
  if (call.db != nullptr) place.backend.reduce(ReduceKind::sum, call.dy, 0b0111u, *call.db, call.mode);
  return true;
}

}  // namespace heddle::cuda
