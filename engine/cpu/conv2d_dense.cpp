// Convolution of tiny images (2x2, 1x1) as one matrix product: with all pixels of an image in one row,
//   y (N, out_h*out_w*O) = x (N, in_h*in_w*C) W^T,  W[(oh,ow,o)][(ih,iw,c)] = w[o][kh][kw][c] where tap (kh,kw) of the
// window at (oh,ow) reads (ih,iw), else 0. Most taps of a padded 3x3 kernel meet only padding there, and W leaves them
// out: a 1x1 image needs a ninth of the multiply-adds that a kernel walking over windows spends.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/core/parallel.h"
#include "engine/cpu/conv2d_list.h"
#include "engine/cpu/matmul_list.h"
#include "engine/cpu/packed_weights.h"

namespace heddle::cpu {
namespace {

constexpr std::int64_t kDenseKernel = 3;  // in PackedLayout

// Kernel index of one axis by which output position `out` reads input position `in`, or -1.
std::int64_t tap_between(std::int64_t out, std::int64_t in, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding, std::int64_t dilation) {
  const std::int64_t distance = in + padding - out * stride;
  if (distance < 0 || distance % dilation != 0 || distance / dilation >= kernel) return -1;
  return distance / dilation;
}

// For each (output pixel, input pixel) the tap kh * kernel_w + kw that joins them, or -1.
std::vector<std::int64_t> taps_of(const ConvSizes& s) {
  const Conv2dParams& p = s.params;
  std::vector<std::int64_t> taps;
  for (std::int64_t o = 0; o < s.out_h * s.out_w; ++o) {
    for (std::int64_t i = 0; i < s.in_h * s.in_w; ++i) {
      const std::int64_t kh = tap_between(o / s.out_w, i / s.in_w, s.kernel_h, p.stride_h, p.padding_h, p.dilation_h);
      const std::int64_t kw = tap_between(o % s.out_w, i % s.in_w, s.kernel_w, p.stride_w, p.padding_w, p.dilation_w);
      taps.push_back(kh < 0 || kw < 0 ? -1 : kh * s.kernel_w + kw);
    }
  }
  return taps;
}

// Calls visit(row of w, offset in the row, row of W, offset in the row) for every run of C floats that both share.
template <class Visit>
void for_each_run(const ConvSizes& s, const std::vector<std::int64_t>& taps, std::int64_t o, Visit&& visit) {
  const std::int64_t out_pixels = s.out_h * s.out_w, in_pixels = s.in_h * s.in_w;
  for (std::int64_t out = 0; out < out_pixels; ++out) {
    for (std::int64_t in = 0; in < in_pixels; ++in) {
      const std::int64_t tap = taps[static_cast<std::size_t>(out * in_pixels + in)];
      visit(tap, out * s.out_c + o, in * s.in_c);
    }
  }
}

Shape dense_shape(const ConvSizes& s) { return {s.out_h * s.out_w * s.out_c, s.in_h * s.in_w * s.in_c}; }

// A grain of rows of w that is worth a thread.
std::int64_t row_grain(const ConvSizes& s) {
  return std::max<std::int64_t>(1, (std::int64_t{1} << 16) / (s.out_h * s.out_w * s.in_h * s.in_w * s.in_c));
}

void fill_dense(const ConvSizes& s, const float* w, float* dense) {
  const std::vector<std::int64_t> taps = taps_of(s);
  const std::int64_t row = s.kernel_h * s.kernel_w * s.in_c, dense_row = s.in_h * s.in_w * s.in_c;
  const std::size_t run_nbytes = static_cast<std::size_t>(s.in_c) * sizeof(float);
  parallel_for(s.out_c, row_grain(s), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      for_each_run(s, taps, o, [&](std::int64_t tap, std::int64_t to_row, std::int64_t to) {
        float* const out = dense + to_row * dense_row + to;
        if (tap < 0) {
          std::memset(out, 0, run_nbytes);
        } else {
          std::memcpy(out, w + o * row + tap * s.in_c, run_nbytes);
        }
      });
    }
  });
}

// W as a tensor; `memory` is the packed storage that it views.
Tensor dense_weights(const ConvSizes& s, const Tensor& w, std::shared_ptr<Storage>& memory) {
  // What decides the layout besides the weight's own shape, whose sizes all fit in these bits for tiny images.
  const Conv2dParams& p = s.params;
  std::int64_t format = 0;
  for (const std::int64_t value : {s.in_h, s.in_w, s.kernel_h, s.kernel_w, p.stride_h, p.stride_w, p.padding_h,
                                   p.padding_w, p.dilation_h, p.dilation_w}) {
    format = format * 64 + value;
  }
  const Shape shape = dense_shape(s);
  memory = PackedWeights::local().get(
      w, {kDenseKernel, s.in_c, format}, static_cast<std::size_t>(shape.numel()) * sizeof(float),
      [&](void* destination) { fill_dense(s, w.host_data<float>(), static_cast<float*>(destination)); });
  return Tensor::wrap(memory->data(), shape, DType::f32);
}

// dw[o][tap] (=|+=) sum over the pairs of pixels that the tap joins of dW.
void gather_weight_gradient(const ConvSizes& s, const float* dense, WriteMode mode, float* dw) {
  const std::vector<std::int64_t> taps = taps_of(s);
  const std::int64_t row = s.kernel_h * s.kernel_w * s.in_c, dense_row = s.in_h * s.in_w * s.in_c;
  parallel_for(s.out_c, row_grain(s), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      float* const out = dw + o * row;
      if (mode == WriteMode::store) std::fill(out, out + row, 0.0f);
      for_each_run(s, taps, o, [&](std::int64_t tap, std::int64_t from_row, std::int64_t from) {
        if (tap < 0) return;
        const float* const in = dense + from_row * dense_row + from;
        float* const sum = out + tap * s.in_c;
        for (std::int64_t c = 0; c < s.in_c; ++c) sum[c] += in[c];
      });
    }
  });
}

}  // namespace

bool conv_dense_supports(const ConvSizes& s, DType dtype) {
  if (dtype != DType::f32 || s.params.groups != 1 || s.macs() == 0) return false;
  const Conv2dParams& p = s.params;
  for (const std::int64_t value : {s.in_h, s.in_w, s.kernel_h, s.kernel_w, p.stride_h, p.stride_w, p.padding_h,
                                   p.padding_w, p.dilation_h, p.dilation_w}) {
    if (value >= 64) return false;
  }
  return s.in_h * s.in_w * s.out_h * s.out_w <= 16;
}

// At least half of W must not be zero, and W must hold less work than walking over windows would.
bool conv_dense_wins(const ConvSizes& s) {
  const std::vector<std::int64_t> taps = taps_of(s);
  const auto joined = std::count_if(taps.begin(), taps.end(), [](std::int64_t tap) { return tap >= 0; });
  return joined * 2 >= static_cast<std::int64_t>(taps.size()) && s.in_h * s.in_w * 2 <= s.kernel_h * s.kernel_w;
}

void conv_forward_dense(const ConvForwardCall& call) {
  const ConvSizes& s = call.sizes;
  const Shape shape = dense_shape(s);
  std::shared_ptr<Storage> memory;
  const Tensor w = dense_weights(s, call.w, memory);
  Tensor bias = call.bias;
  if (bias.defined() && s.out_h * s.out_w > 1) {
    bias = Tensor::empty({shape[0]});
    float* const repeated = bias.mutable_host_data<float>();
    for (std::int64_t pixel = 0; pixel < s.out_h * s.out_w; ++pixel) {
      std::copy_n(call.bias.host_data<float>(), s.out_c, repeated + pixel * s.out_c);
    }
  }
  Tensor y = call.y.reshape({s.batch, shape[0]});
  linear_forward_simd(call.x.reshape({s.batch, shape[1]}), w, bias, call.relu, y);
}

void conv_backward_data_dense(const ConvBackwardDataCall& call) {
  const ConvSizes& s = call.sizes;
  const Shape shape = dense_shape(s);
  std::shared_ptr<Storage> memory;
  const Tensor w = dense_weights(s, call.w, memory);
  const Tensor mask = call.relu_mask.defined() ? call.relu_mask.reshape({s.batch, shape[1]}) : Tensor();
  Tensor dx = call.dx.reshape({s.batch, shape[1]});
  linear_backward_data_simd(call.dy.reshape({s.batch, shape[0]}), w, mask, dx);
}

void conv_backward_weight_dense(const ConvBackwardWeightCall& call) {
  const ConvSizes& s = call.sizes;
  const Shape shape = dense_shape(s);
  Tensor dense = Tensor::empty(shape);
  linear_backward_weight_simd(call.x.reshape({s.batch, shape[1]}), call.dy.reshape({s.batch, shape[0]}), dense,
                              WriteMode::store);
  gather_weight_gradient(s, dense.host_data<float>(), call.mode, call.dw.mutable_host_data<float>());
  if (call.db != nullptr) column_sums(call.dy, *call.db, call.mode);
}

}  // namespace heddle::cpu
