// Convolution as plain loops: for f64 (gradient checks) and for what nothing faster takes. Sums are in double.
#include <algorithm>
#include <vector>

#include "engine/core/parallel.h"
#include "engine/cpu/conv2d_list.h"

namespace heddle::cpu {
namespace {

// Rows of output or images per thread are never too few: one row costs thousands of multiply-adds.
constexpr std::int64_t kGrain = 1;

template <class Function>
void with_dtype(DType dtype, Function&& function) {
  if (dtype == DType::f32) {
    function(float{});
  } else {
    function(double{});
  }
}

template <class T>
double dot(const T* a, const T* b, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

template <class T>
void add_scaled(double factor, const T* x, double* sum, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) sum[i] += factor * static_cast<double>(x[i]);
}

// Input row or column that a window at `out` reads with its element k; may lie outside.
std::int64_t input_index(std::int64_t out, std::int64_t k, std::int64_t stride, std::int64_t padding,
                         std::int64_t dilation) {
  return out * stride - padding + k * dilation;
}

// The window position whose element k reads input index `in`, or -1.
std::int64_t window_of(std::int64_t in, std::int64_t k, std::int64_t stride, std::int64_t padding,
                       std::int64_t dilation, std::int64_t out_size) {
  const std::int64_t start = in + padding - k * dilation;
  if (start < 0 || start % stride != 0 || start / stride >= out_size) return -1;
  return start / stride;
}

template <class T>
void forward(const ConvForwardCall& call) {
  const ConvSizes& s = call.sizes;
  const Conv2dParams& p = s.params;
  const std::int64_t in_c = s.group_in_c(), out_c = s.group_out_c();
  const T* const x = call.x.host_data<T>();
  const T* const w = call.w.host_data<T>();
  const T* const bias = call.bias.defined() ? call.bias.host_data<T>() : nullptr;
  T* const y = call.y.mutable_host_data<T>();
  parallel_for(s.batch * s.out_h, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(s.out_c));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / s.out_h, oh = row % s.out_h;
      for (std::int64_t ow = 0; ow < s.out_w; ++ow) {
        for (std::int64_t o = 0; o < s.out_c; ++o) {
          sums[static_cast<std::size_t>(o)] = bias == nullptr ? 0.0 : static_cast<double>(bias[o]);
        }
        for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
          const std::int64_t ih = input_index(oh, kh, p.stride_h, p.padding_h, p.dilation_h);
          if (ih < 0 || ih >= s.in_h) continue;
          for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
            const std::int64_t iw = input_index(ow, kw, p.stride_w, p.padding_w, p.dilation_w);
            if (iw < 0 || iw >= s.in_w) continue;
            const T* const pixel = x + ((n * s.in_h + ih) * s.in_w + iw) * s.in_c;
            for (std::int64_t o = 0; o < s.out_c; ++o) {
              sums[static_cast<std::size_t>(o)] +=
                  dot(pixel + o / out_c * in_c, w + ((o * s.kernel_h + kh) * s.kernel_w + kw) * in_c, in_c);
            }
          }
        }
        T* const out = y + (row * s.out_w + ow) * s.out_c;
        for (std::int64_t o = 0; o < s.out_c; ++o) {
          const double value = sums[static_cast<std::size_t>(o)];
          out[o] = static_cast<T>(call.relu && value < 0 ? 0.0 : value);
        }
      }
    }
  });
}

// dx[n,ih,iw,i] = sum over (o,kh,kw) with oh * stride - padding + kh * dilation = ih (same for width) of
// dy[n,oh,ow,o] * w[o,kh,kw,i].
template <class T>
void backward_data(const ConvBackwardDataCall& call) {
  const ConvSizes& s = call.sizes;
  const Conv2dParams& p = s.params;
  const std::int64_t in_c = s.group_in_c(), out_c = s.group_out_c();
  const T* const dy = call.dy.host_data<T>();
  const T* const w = call.w.host_data<T>();
  T* const dx = call.dx.mutable_host_data<T>();
  parallel_for(s.batch * s.in_h, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(s.in_c));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / s.in_h, ih = row % s.in_h;
      for (std::int64_t iw = 0; iw < s.in_w; ++iw) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
          const std::int64_t oh = window_of(ih, kh, p.stride_h, p.padding_h, p.dilation_h, s.out_h);
          if (oh < 0) continue;
          for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
            const std::int64_t ow = window_of(iw, kw, p.stride_w, p.padding_w, p.dilation_w, s.out_w);
            if (ow < 0) continue;
            const T* const pixel = dy + ((n * s.out_h + oh) * s.out_w + ow) * s.out_c;
            for (std::int64_t o = 0; o < s.out_c; ++o) {
              add_scaled(static_cast<double>(pixel[o]), w + ((o * s.kernel_h + kh) * s.kernel_w + kw) * in_c,
                         sums.data() + o / out_c * in_c, in_c);
            }
          }
        }
        T* const out = dx + (row * s.in_w + iw) * s.in_c;
        for (std::int64_t i = 0; i < s.in_c; ++i) out[i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
      }
    }
  });
}

// dw[o,kh,kw,i] = sum over (n,oh,ow) of dy[n,oh,ow,o] * x[n,ih,iw,i]; db[o] = sum over (n,oh,ow) of dy. Threads share
// the output channels, so the sums do not depend on their number.
template <class T>
void backward_weight(const ConvBackwardWeightCall& call) {
  const ConvSizes& s = call.sizes;
  const Conv2dParams& p = s.params;
  const std::int64_t in_c = s.group_in_c(), out_c = s.group_out_c();
  const bool add = call.mode == WriteMode::add;
  const T* const x = call.x.host_data<T>();
  const T* const dy = call.dy.host_data<T>();
  T* const dw = call.dw.mutable_host_data<T>();
  T* const db = call.db == nullptr ? nullptr : call.db->mutable_host_data<T>();
  parallel_for(s.out_c, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t taps = s.kernel_h * s.kernel_w;
    std::vector<double> sums(static_cast<std::size_t>(taps * in_c));
    for (std::int64_t o = begin; o < end; ++o) {
      std::fill(sums.begin(), sums.end(), 0.0);
      double bias_sum = 0;
      for (std::int64_t row = 0; row < s.batch * s.out_h; ++row) {
        const std::int64_t n = row / s.out_h, oh = row % s.out_h;
        for (std::int64_t ow = 0; ow < s.out_w; ++ow) {
          const auto g = static_cast<double>(dy[(row * s.out_w + ow) * s.out_c + o]);
          bias_sum += g;
          for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
            const std::int64_t ih = input_index(oh, kh, p.stride_h, p.padding_h, p.dilation_h);
            if (ih < 0 || ih >= s.in_h) continue;
            for (std::int64_t kw = 0; kw < s.kernel_w; ++kw) {
              const std::int64_t iw = input_index(ow, kw, p.stride_w, p.padding_w, p.dilation_w);
              if (iw < 0 || iw >= s.in_w) continue;
              add_scaled(g, x + ((n * s.in_h + ih) * s.in_w + iw) * s.in_c + o / out_c * in_c,
                         sums.data() + (kh * s.kernel_w + kw) * in_c, in_c);
            }
          }
        }
      }
      T* const out = dw + o * taps * in_c;
      for (std::int64_t i = 0; i < taps * in_c; ++i) {
        out[i] = static_cast<T>(sums[static_cast<std::size_t>(i)] + (add ? static_cast<double>(out[i]) : 0.0));
      }
      if (db != nullptr) db[o] = static_cast<T>(bias_sum + (add ? static_cast<double>(db[o]) : 0.0));
    }
  });
}

}  // namespace

bool conv_plain_supports(const ConvSizes&, DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

void conv_forward_plain(const ConvForwardCall& call) {
  with_dtype(call.x.dtype(), [&](auto zero) { forward<decltype(zero)>(call); });
}

void conv_backward_data_plain(const ConvBackwardDataCall& call) {
  with_dtype(call.dy.dtype(), [&](auto zero) { backward_data<decltype(zero)>(call); });
}

void conv_backward_weight_plain(const ConvBackwardWeightCall& call) {
  with_dtype(call.x.dtype(), [&](auto zero) { backward_weight<decltype(zero)>(call); });
}

}  // namespace heddle::cpu
