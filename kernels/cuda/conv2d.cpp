// Convolutions of the CUDA backend.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/int_size.h"
#include "kernels/cuda/split_tickets.h"
#include "kernels/cuda/visit.h"
#include "kernels/launch/matrix_kernels.h"

namespace heddle::cuda {
namespace {

// x (N,H,W,C), w (O,KH,KW,C/groups), y (N,OH,OW,O).
ConvGeometry geometry_of(const char* op, const Shape& x, const Shape& w, const Shape& y, const Conv2dParams& params) {
  const auto size = [op](std::int64_t value) { return int_size(op, value); };
  size(x[0] * x[1] * x[2]);
  size(y[0] * y[1] * y[2]);
  size(w.numel());
  return {.batch = size(x[0]),
          .in_h = size(x[1]),
          .in_w = size(x[2]),
          .in_c = size(x[3]),
          .out_h = size(y[1]),
          .out_w = size(y[2]),
          .out_c = size(y[3]),
          .kernel_h = size(w[1]),
          .kernel_w = size(w[2]),
          .stride_h = size(params.stride_h),
          .stride_w = size(params.stride_w),
          .padding_h = size(params.padding_h),
          .padding_w = size(params.padding_w),
          .dilation_h = size(params.dilation_h),
          .dilation_w = size(params.dilation_w),
          .groups = size(params.groups),
          .group_in_c = size(w[3]),
          .group_out_c = size(y[3] / params.groups)};
}

}  // namespace

void CudaBackend::conv2d_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                                 bool relu, Tensor& y) {
  if (y.numel() == 0) return;
  const ConvGeometry g = geometry_of("conv2d_forward", x.shape(), w.shape(), y.shape(), params);
  const SplitMemory memory(plan_conv_forward(g), device_, *tickets_, stream());
  visit_floats("conv2d_forward", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    conv_forward(
        ConvForwardArguments<T>{
            .g = g, .x = data_of<T>(x), .w = data_of<T>(w), .bias = data_of<T>(bias), .relu = relu, .y = data_of<T>(y)},
        memory.scratch(), stream());
  });
}

void CudaBackend::conv2d_backward_data(const Tensor& dy, const Tensor& w, const Conv2dParams& params,
                                       const Tensor& relu_mask, Tensor& dx, WriteMode mode) {
  if (dx.numel() == 0) return;
  const ConvGeometry g = geometry_of("conv2d_backward_data", dx.shape(), w.shape(), dy.shape(), params);
  const SplitMemory memory(plan_conv_backward_data(g), device_, *tickets_, stream());
  visit_floats("conv2d_backward_data", dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    conv_backward_data(ConvBackwardDataArguments<T>{.g = g,
                                                    .dy = data_of<T>(dy),
                                                    .w = data_of<T>(w),
                                                    .relu_mask = data_of<T>(relu_mask),
                                                    .dx = data_of<T>(dx),
                                                    .add = mode == WriteMode::add},
                       memory.scratch(), stream());
  });
}

void CudaBackend::conv2d_backward_weight(const Tensor& x, const Tensor& dy, const Conv2dParams& params, Tensor& dw,
                                         Tensor* db, WriteMode mode) {
  if (dw.numel() == 0) return;
  const ConvGeometry g = geometry_of("conv2d_backward_weight", x.shape(), dw.shape(), dy.shape(), params);
  const SplitMemory memory(plan_conv_backward_weight(g), device_, *tickets_, stream());
  visit_floats("conv2d_backward_weight", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    conv_backward_weight(ConvBackwardWeightArguments<T>{.g = g,
                                                        .x = data_of<T>(x),
                                                        .dy = data_of<T>(dy),
                                                        .dw = data_of<T>(dw),
                                                        .db = db == nullptr ? nullptr : data_of<T>(*db),
                                                        .add = mode == WriteMode::add},
                         memory.scratch(), stream());
  });
}

}  // namespace heddle::cuda
