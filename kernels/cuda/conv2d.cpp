// Convolution: picks an implementation for each call. The implementations are in conv2d_*.cpp.
#include <array>

#include "kernels/cuda/conv2d_list.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/int_size.h"
#include "kernels/cuda/run_best.h"

namespace heddle::cuda {
namespace {

constexpr KernelSource kOwn = KernelSource::own, kVendor = KernelSource::vendor;

template <class Call>
constexpr bool takes_all(const Call&) noexcept {
  return true;
}
constexpr bool always(const ConvGeometry&) noexcept { return true; }

// A tile of tensor cores, and of the kernels for matrix products, is at least 16 channels wide: with fewer most of it
// is idle. Chosen by counting, not by measuring.
bool few_channels(const ConvGeometry& g) { return g.in_c < 16 || g.out_c < 16; }

constexpr std::array kForwardRows = {
    ConvRow<ConvForwardCall>{"direct", kOwn, conv_forward_direct_supports, few_channels, conv_forward_direct},
    ConvRow<ConvForwardCall>{"cudnn", kVendor, conv_forward_cudnn_supports, always, conv_forward_cudnn},
    ConvRow<ConvForwardCall>{"tiles", kOwn, takes_all, always, conv_forward_tiles},
};
constexpr std::array kBackwardDataRows = {
    ConvRow<ConvBackwardDataCall>{"direct", kOwn, conv_backward_data_direct_supports, few_channels,
                                  conv_backward_data_direct},
    ConvRow<ConvBackwardDataCall>{"cudnn", kVendor, conv_backward_data_cudnn_supports, always,
                                  conv_backward_data_cudnn},
    ConvRow<ConvBackwardDataCall>{"tiles", kOwn, takes_all, always, conv_backward_data_tiles},
};
constexpr std::array kBackwardWeightRows = {
    ConvRow<ConvBackwardWeightCall>{"direct", kOwn, conv_backward_weight_direct_supports, few_channels,
                                    conv_backward_weight_direct},
    ConvRow<ConvBackwardWeightCall>{"cudnn", kVendor, conv_backward_weight_cudnn_supports, always,
                                    conv_backward_weight_cudnn},
    ConvRow<ConvBackwardWeightCall>{"tiles", kOwn, takes_all, always, conv_backward_weight_tiles},
};

template <class Rows, class Call>
void run_row(const Rows& rows, const Call& call, const ConvPlace& place) {
  run_best(
      rows, [&](const auto& row) { return row.supports(call) && row.wins(call.g); },
      [&](const auto& row) { return row.run(call, place); });
}

}  // namespace

std::span<const ConvRow<ConvForwardCall>> conv_forward_rows() { return kForwardRows; }
std::span<const ConvRow<ConvBackwardDataCall>> conv_backward_data_rows() { return kBackwardDataRows; }
std::span<const ConvRow<ConvBackwardWeightCall>> conv_backward_weight_rows() { return kBackwardWeightRows; }

ConvGeometry conv_geometry(const char* op, const Shape& x, const Shape& w, const Shape& y, const Conv2dParams& params) {
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

void CudaBackend::conv2d_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                                 bool relu, Tensor& y) {
  if (y.numel() == 0) return;
  const ConvForwardCall call{
      conv_geometry("conv2d_forward", x.shape(), w.shape(), y.shape(), params), x, w, bias, relu, y};
  run_row(kForwardRows, call, {*this, *graphs_, *tickets_, device_, stream()});
}

void CudaBackend::conv2d_backward_data(const Tensor& dy, const Tensor& w, const Conv2dParams& params,
                                       const Tensor& relu_mask, Tensor& dx, WriteMode mode) {
  if (dx.numel() == 0) return;
  const ConvBackwardDataCall call{
      conv_geometry("conv2d_backward_data", dx.shape(), w.shape(), dy.shape(), params), dy, w, relu_mask, dx, mode};
  run_row(kBackwardDataRows, call, {*this, *graphs_, *tickets_, device_, stream()});
}

void CudaBackend::conv2d_backward_weight(const Tensor& x, const Tensor& dy, const Conv2dParams& params, Tensor& dw,
                                         Tensor* db, WriteMode mode) {
  const ConvPlace place{*this, *graphs_, *tickets_, device_, stream()};
  const ConvBackwardWeightCall call{
      conv_geometry("conv2d_backward_weight", x.shape(), dw.shape(), dy.shape(), params), x, dy, dw, db, mode};
  if (x.numel() == 0) {
    // An empty sum; the library takes no empty tensors.
    conv_backward_weight_tiles(call, place);
    return;
  }
  run_row(kBackwardWeightRows, call, place);
}

}  // namespace heddle::cuda
