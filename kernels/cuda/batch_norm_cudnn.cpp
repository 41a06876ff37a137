// Batch norm by cuDNN's graphs. Unlike the own kernels they take into the running statistics what is not finite, where
// it stays: a training that is to go on after such a step (StepOptions::halt_on_non_finite off) needs the own kernels.
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cuda/batch_norm_list.h"

namespace heddle::cuda {
namespace {

bool is_aligned(const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.raw_data()) % 16 == 0; }
template <class... Tensors>
bool are_aligned(const Tensors&... tensors) {
  return (is_aligned(tensors) && ...);
}

// Channels that fill 16 bytes, and sizes that fit an int. Of one row the library has no variance.
bool is_taken(const Tensor& x) {
  if (x.dtype() != DType::f32 && x.dtype() != DType::bf16) return false;
  const NormSize size = norm_size(x);
  return size.rows > 1 && size.channels % (x.dtype() == DType::bf16 ? 8 : 4) == 0 &&
         size.rows <= std::numeric_limits<int>::max() && size.channels <= std::numeric_limits<int>::max();
}

// The library's masks are of bits.
bool is_mask_taken(const Tensor& mask, const Tensor& x) { return !mask.defined() || has_mask_bits(x.dim(-1)); }

// Images as they are; other arrays as images of one pixel.
GraphKey key(GraphKind kind, std::int32_t flags, const Tensor& x) {
  const auto size = [](std::int64_t n) { return static_cast<int>(n); };
  const NormSize whole = norm_size(x);
  const bool images = x.rank() == 4;
  const int height = images ? size(x.dim(1)) : 1, width = images ? size(x.dim(2)) : 1, channels = size(whole.channels);
  return {.kind = kind,
          .bf16 = x.dtype() == DType::bf16 ? 1 : 0,
          .flags = flags,
          .geometry = {.batch = size(whole.rows / height / width),
                       .in_h = height,
                       .in_w = width,
                       .in_c = channels,
                       .out_h = height,
                       .out_w = width,
                       .out_c = channels,
                       .kernel_h = 1,
                       .kernel_w = 1,
                       .stride_h = 1,
                       .stride_w = 1,
                       .padding_h = 0,
                       .padding_w = 0,
                       .dilation_h = 1,
                       .dilation_w = 1,
                       .groups = 1,
                       .group_in_c = channels,
                       .group_out_c = channels}};
}

GraphTensor read(GraphRole role, const Tensor& tensor) { return {role, tensor.raw_data(), tensor.nbytes()}; }
GraphTensor written(GraphRole role, Tensor& tensor) {
  return {role, tensor.mutable_raw_data(), tensor.nbytes(), false, true};
}
GraphTensor number(GraphRole role, const float& value) { return {role, &value}; }

// What training and inference share.
std::int32_t forward_flags(const BatchNormForward& op) {
  return (op.addend.defined() ? graph_flag::kAdd : 0) | (op.relu ? graph_flag::kRelu : 0) |
         (op.relu && op.mask.defined() ? graph_flag::kMask : 0);
}
void add_forward_tensors(BatchNormForward& op, const float& epsilon, std::vector<GraphTensor>& tensors) {
  tensors = {read(GraphRole::x, op.x),
             read(GraphRole::scale, op.scale),
             read(GraphRole::bias, op.shift),
             read(GraphRole::running_mean, op.running_mean),
             read(GraphRole::running_var, op.running_var),
             number(GraphRole::epsilon, epsilon),
             written(GraphRole::y, op.y)};
  if (op.addend.defined()) tensors.push_back(read(GraphRole::addend, op.addend));
}
bool is_forward_taken(const BatchNormForward& op) {
  return is_taken(op.x) && op.running_mean.defined() &&
         are_aligned(op.x, op.addend, op.y, op.mask, op.scale, op.shift, op.running_mean, op.running_var, op.mean,
                     op.inv_std);
}

}  // namespace

bool norm_training_cudnn_supports(const BatchNormForward& op) {
  return op.batch_statistics && !op.exchanged.defined() && op.mean.defined() && is_mask_taken(op.mask, op.x) &&
         is_forward_taken(op);
}
bool norm_inference_cudnn_supports(const BatchNormForward& op) {
  return !op.batch_statistics && !op.mean.defined() && !op.mask.defined() && is_forward_taken(op);
}
// The graph writes, and does not add. Gradients of scale and shift that nobody wants take memory of their own.
bool norm_backward_cudnn_supports(const BatchNormBackward& op) {
  const auto stored = [](const Tensor& gradient, WriteMode mode) {
    return !gradient.defined() || mode == WriteMode::store;
  };
  return op.batch_statistics && is_taken(op.x) && op.dx.defined() && op.dx_mode == WriteMode::store &&
         !op.x_relu_mask.defined() && (!op.relu || op.mask.defined()) && is_mask_taken(op.mask, op.x) &&
         stored(op.dscale, op.dscale_mode) && stored(op.dshift, op.dshift_mode) &&
         (!op.daddend.defined() || (op.relu && op.daddend_mode == WriteMode::store)) &&
         are_aligned(op.x, op.dy, op.scale, op.mean, op.inv_std, op.mask, op.dscale, op.dshift, op.dx, op.daddend);
}

bool norm_training_cudnn(BatchNormForward& op, const NormPlace& place) {
  const auto epsilon = static_cast<float>(op.eps), momentum = static_cast<float>(op.momentum), zero = 0.0f;
  const std::int32_t flags = forward_flags(op);
  std::vector<GraphTensor> tensors;
  add_forward_tensors(op, epsilon, tensors);
  tensors.push_back(number(GraphRole::momentum, momentum));
  tensors.push_back(written(GraphRole::new_running_mean, op.running_mean));
  tensors.push_back(written(GraphRole::new_running_var, op.running_var));
  tensors.push_back(written(GraphRole::mean, op.mean));
  tensors.push_back(written(GraphRole::inv_std, op.inv_std));
  if ((flags & graph_flag::kMask) != 0) {
    tensors.push_back(number(GraphRole::zero, zero));
    tensors.push_back(written(GraphRole::mask, op.mask));
  }
  return place.graphs.run("cudnn_norm_forward", key(GraphKind::norm_forward, flags, op.x), tensors, place.stream);
}

bool norm_inference_cudnn(BatchNormForward& op, const NormPlace& place) {
  const auto epsilon = static_cast<float>(op.eps);
  std::vector<GraphTensor> tensors;
  add_forward_tensors(op, epsilon, tensors);
  return place.graphs.run("cudnn_norm_inference", key(GraphKind::norm_inference, forward_flags(op), op.x), tensors,
                          place.stream);
}

bool norm_backward_cudnn(BatchNormBackward& op, const NormPlace& place) {
  const bool keep = op.daddend.defined();
  const auto wanted = [](Tensor& gradient, const Tensor& like) {
    return gradient.defined() ? gradient : Tensor::empty_like(like);
  };
  Tensor dscale = wanted(op.dscale, op.scale), dshift = wanted(op.dshift, op.scale);
  std::vector<GraphTensor> tensors = {read(GraphRole::x, op.x),           read(GraphRole::dy, op.dy),
                                      read(GraphRole::mean, op.mean),     read(GraphRole::inv_std, op.inv_std),
                                      read(GraphRole::scale, op.scale),   written(GraphRole::dx, op.dx),
                                      written(GraphRole::dscale, dscale), written(GraphRole::dbias, dshift)};
  if (op.relu) tensors.push_back(read(GraphRole::mask, op.mask));
  if (keep) tensors.push_back(written(GraphRole::masked, op.daddend));
  const std::int32_t flags = (op.relu ? graph_flag::kMask : 0) | (keep ? graph_flag::kKeepMasked : 0);
  return place.graphs.run("cudnn_norm_backward", key(GraphKind::norm_backward, flags, op.x), tensors, place.stream);
}

}  // namespace heddle::cuda
