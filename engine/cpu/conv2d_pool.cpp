// Convolution, ReLU and 2x2 pooling in one pass each way, on the own SIMD kernels. Not a row of the convolution's
// lists, because it is no implementation of a convolution: ops ask for it, and take the two primitives where there is
// none.
#include "engine/backend/kernel_choice.h"
#include "engine/cpu/conv2d_list.h"
#include "engine/cpu/cpu_backend.h"

namespace heddle::cpu {
namespace {

// Of the convolution, whose output never exists as a tensor.
ConvSizes sizes_of(const Shape& x, const Shape& w, const Conv2dParams& p) {
  const auto size = [](std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                       std::int64_t dilation) { return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; };
  const Shape y{x[0], size(x[1], w[1], p.stride_h, p.padding_h, p.dilation_h),
                size(x[2], w[2], p.stride_w, p.padding_w, p.dilation_w), w[0]};
  return conv_sizes(x, w, y, p);
}

class SimdConv2dPool final : public FusedConv2dPool {
 public:
  void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dPoolParams& params, Tensor& y,
               Tensor& code) override {
    note_kernel(kUsed);
    conv_pool_forward_simd({sizes_of(x.shape(), w.shape(), params.conv), x, w, bias, true, y}, params.pool, code);
  }

  void backward_data(const Tensor& dy, const Tensor& code, const Tensor& w, const Conv2dPoolParams& params,
                     const Tensor& relu_mask, Tensor& dx, WriteMode mode) override {
    note_kernel(kUsed);
    conv_pool_backward_data_simd({sizes_of(dx.shape(), w.shape(), params.conv), dy, w, relu_mask, dx}, params.pool,
                                 code, mode);
  }

  void backward_weight(const Tensor& x, const Tensor& dy, const Tensor& code, const Conv2dPoolParams& params,
                       Tensor& dw, Tensor* db, WriteMode mode) override {
    note_kernel(kUsed);
    conv_pool_backward_weight_simd({sizes_of(x.shape(), dw.shape(), params.conv), x, dy, dw, db, mode}, params.pool,
                                   code);
  }

 private:
  static constexpr KernelUsed kUsed = {"fused", KernelSource::own};
};

}  // namespace

// Where the simd kernels are the choice for the convolution, pooling on the fly saves writing and reading twice an
// array of four times the result. Wherever it was measured (AVX2, processor time of one thread) it was faster, or level
// where each value takes many multiply-adds; tests/bench/conv_bench compares the two. Where oneDNN is the choice it
// stays.
FusedConv2dPool* CpuBackend::fused_conv2d_pool(const Tensor& x, const Tensor& w, const Conv2dPoolParams& params) {
  static SimdConv2dPool fused;
  const ConvSizes sizes = sizes_of(x.shape(), w.shape(), params.conv);
  if (sizes.batch == 0 || sizes.out_h < 2 || sizes.out_w < 2) return nullptr;
  return conv_simd_is_chosen(sizes, x.dtype()) ? &fused : nullptr;
}

}  // namespace heddle::cpu
