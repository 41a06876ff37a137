// The implementations of convolution as rows of lists, best first, one list per pass. conv2d.cpp runs the first row
// that takes a call; tests run every row.
#pragma once

#include <cstdint>
#include <span>

#include "engine/backend/kernel_choice.h"
#include "engine/backend/op_params.h"
#include "engine/core/dtype.h"
#include "engine/tensor/tensor.h"

namespace heddle::cpu {

// All sizes of one convolution, at least 1 each. Plain data, so that it can be a part of a cache's key.
struct ConvSizes {
  std::int64_t batch = 0;
  std::int64_t in_h = 0, in_w = 0, in_c = 0;
  std::int64_t out_h = 0, out_w = 0, out_c = 0;
  std::int64_t kernel_h = 0, kernel_w = 0;
  Conv2dParams params;

  std::int64_t group_in_c() const noexcept { return in_c / params.groups; }
  std::int64_t group_out_c() const noexcept { return out_c / params.groups; }
  // Multiply-adds of one pass.
  std::int64_t macs() const noexcept { return batch * out_h * out_w * out_c * kernel_h * kernel_w * group_in_c(); }
};

// x (N,H,W,C), w (O,KH,KW,C/groups), y (N,OH,OW,O).
ConvSizes conv_sizes(const Shape& x, const Shape& w, const Shape& y, const Conv2dParams& params);

struct ConvForwardCall {
  ConvSizes sizes;
  const Tensor& x;
  const Tensor& w;
  const Tensor& bias;  // or undefined
  bool relu;
  Tensor& y;
};

// Rows store into dx and need not look at the mode: conv2d.cpp hands them other memory for WriteMode::add. A row that
// does not apply the mask itself says so, and conv2d.cpp does it.
struct ConvBackwardDataCall {
  ConvSizes sizes;
  const Tensor& dy;
  const Tensor& w;
  const Tensor& relu_mask;  // or undefined
  Tensor& dx;
};

struct ConvBackwardWeightCall {
  ConvSizes sizes;
  const Tensor& x;
  const Tensor& dy;
  Tensor& dw;
  Tensor* db;  // or nullptr
  WriteMode mode;
};

struct ConvForwardRow {
  const char* name;
  KernelSource source;
  bool (*supports)(const ConvSizes& sizes, DType dtype);  // can it
  bool (*wins)(const ConvSizes& sizes, DType dtype);      // should it, where a later row can too
  void (*run)(const ConvForwardCall& call);
};
struct ConvBackwardDataRow {
  const char* name;
  KernelSource source;
  bool (*supports)(const ConvSizes& sizes, DType dtype);
  bool (*wins)(const ConvSizes& sizes, DType dtype);
  bool applies_mask;
  void (*run)(const ConvBackwardDataCall& call);
};
struct ConvBackwardWeightRow {
  const char* name;
  KernelSource source;
  bool (*supports)(const ConvSizes& sizes, DType dtype);
  bool (*wins)(const ConvSizes& sizes, DType dtype);
  void (*run)(const ConvBackwardWeightCall& call);
};

std::span<const ConvForwardRow> conv_forward_rows();
std::span<const ConvBackwardDataRow> conv_backward_data_rows();
std::span<const ConvBackwardWeightRow> conv_backward_weight_rows();
// True if the simd rows are what all three passes run on under the present kernel_choice().
bool conv_simd_is_chosen(const ConvSizes& sizes, DType dtype);

// conv2d_simd.cpp: f32 without groups and dilation. The mask of the data gradient is applied.
bool conv_simd_supports(const ConvSizes& sizes, DType dtype);
void conv_forward_simd(const ConvForwardCall& call);
void conv_backward_data_simd(const ConvBackwardDataCall& call);
void conv_backward_weight_simd(const ConvBackwardWeightCall& call);
// The same with a 2x2 pooling behind the convolution in the same pass: y, dy and code (u8, see FusedConv2dPool; may be
// undefined in the forward pass) are of the pooled shape, the call's sizes are the convolution's.
void conv_pool_forward_simd(const ConvForwardCall& call, PoolKind pool, const Tensor& code);
void conv_pool_backward_data_simd(const ConvBackwardDataCall& call, PoolKind pool, const Tensor& code, WriteMode mode);
void conv_pool_backward_weight_simd(const ConvBackwardWeightCall& call, PoolKind pool, const Tensor& code);

// conv2d_dense.cpp: f32, tiny images (in_h*in_w*out_h*out_w <= 16) without groups. The mask is applied.
bool conv_dense_supports(const ConvSizes& sizes, DType dtype);
bool conv_dense_wins(const ConvSizes& sizes);
void conv_forward_dense(const ConvForwardCall& call);
void conv_backward_data_dense(const ConvBackwardDataCall& call);
void conv_backward_weight_dense(const ConvBackwardWeightCall& call);

// conv2d_dnnl.cpp. The supports functions make and keep the primitive.
bool conv_forward_dnnl_supports(const ConvSizes& sizes, DType dtype);
bool conv_backward_data_dnnl_supports(const ConvSizes& sizes, DType dtype);
bool conv_backward_weight_dnnl_supports(const ConvSizes& sizes, DType dtype);
void conv_forward_dnnl(const ConvForwardCall& call);
void conv_backward_data_dnnl(const ConvBackwardDataCall& call);
void conv_backward_weight_dnnl(const ConvBackwardWeightCall& call);

// conv2d_plain.cpp: loops for f32 and f64, sums in double. Takes everything, zero sizes too.
bool conv_plain_supports(const ConvSizes& sizes, DType dtype);
void conv_forward_plain(const ConvForwardCall& call);
void conv_backward_data_plain(const ConvBackwardDataCall& call);
void conv_backward_weight_plain(const ConvBackwardWeightCall& call);

}  // namespace heddle::cpu
