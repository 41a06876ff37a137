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

// The sizes of a call, and where things are in its tensors.
struct Geometry : ConvSizes {
  explicit Geometry(const ConvSizes& sizes) : ConvSizes(sizes), in_group(group_in_c()), out_group(group_out_c()) {}

  // Input row or column that a window at `out` reads with its element k, or -1 if that is padding.
  std::int64_t in_row(std::int64_t oh, std::int64_t kh) const {
    return inside(oh * params.stride_h - params.padding_h + kh * params.dilation_h, in_h);
  }
  std::int64_t in_column(std::int64_t ow, std::int64_t kw) const {
    return inside(ow * params.stride_w - params.padding_w + kw * params.dilation_w, in_w);
  }
  // The window whose element k reads the input row or column, or -1.
  std::int64_t out_row(std::int64_t ih, std::int64_t kh) const {
    return window_of(ih + params.padding_h - kh * params.dilation_h, params.stride_h, out_h);
  }
  std::int64_t out_column(std::int64_t iw, std::int64_t kw) const {
    return window_of(iw + params.padding_w - kw * params.dilation_w, params.stride_w, out_w);
  }
  std::int64_t x_pixel(std::int64_t n, std::int64_t ih, std::int64_t iw) const {
    return ((n * in_h + ih) * in_w + iw) * in_c;
  }
  std::int64_t y_pixel(std::int64_t n, std::int64_t oh, std::int64_t ow) const {
    return ((n * out_h + oh) * out_w + ow) * out_c;
  }
  // First weight of output o for one element of the window.
  std::int64_t w_tap(std::int64_t o, std::int64_t kh, std::int64_t kw) const {
    return ((o * kernel_h + kh) * kernel_w + kw) * in_group;
  }
  // First input channel of the group of output o.
  std::int64_t group_begin(std::int64_t o) const { return o / out_group * in_group; }

  std::int64_t in_group, out_group;  // channels of a group

 private:
  static std::int64_t inside(std::int64_t i, std::int64_t size) { return i >= 0 && i < size ? i : -1; }
  static std::int64_t window_of(std::int64_t start, std::int64_t stride, std::int64_t count) {
    return start < 0 || start % stride != 0 || start / stride >= count ? -1 : start / stride;
  }
};

template <class T>
void forward(const ConvForwardCall& call) {
  const Geometry g(call.sizes);
  const T* const x = call.x.host_data<T>();
  const T* const w = call.w.host_data<T>();
  const T* const bias = call.bias.defined() ? call.bias.host_data<T>() : nullptr;
  T* const y = call.y.mutable_host_data<T>();
  parallel_for(g.batch * g.out_h, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(g.out_c));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / g.out_h, oh = row % g.out_h;
      for (std::int64_t ow = 0; ow < g.out_w; ++ow) {
        for (std::int64_t o = 0; o < g.out_c; ++o) {
          sums[static_cast<std::size_t>(o)] = bias == nullptr ? 0.0 : static_cast<double>(bias[o]);
        }
        for (std::int64_t kh = 0; kh < g.kernel_h; ++kh) {
          const std::int64_t ih = g.in_row(oh, kh);
          if (ih < 0) continue;
          for (std::int64_t kw = 0; kw < g.kernel_w; ++kw) {
            const std::int64_t iw = g.in_column(ow, kw);
            if (iw < 0) continue;
            const T* const pixel = x + g.x_pixel(n, ih, iw);
            for (std::int64_t o = 0; o < g.out_c; ++o) {
              sums[static_cast<std::size_t>(o)] += dot(pixel + g.group_begin(o), w + g.w_tap(o, kh, kw), g.in_group);
            }
          }
        }
        T* const out = y + g.y_pixel(n, oh, ow);
        for (std::int64_t o = 0; o < g.out_c; ++o) {
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
  const Geometry g(call.sizes);
  const T* const dy = call.dy.host_data<T>();
  const T* const w = call.w.host_data<T>();
  T* const dx = call.dx.mutable_host_data<T>();
  parallel_for(g.batch * g.in_h, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums(static_cast<std::size_t>(g.in_c));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t n = row / g.in_h, ih = row % g.in_h;
      for (std::int64_t iw = 0; iw < g.in_w; ++iw) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::int64_t kh = 0; kh < g.kernel_h; ++kh) {
          const std::int64_t oh = g.out_row(ih, kh);
          if (oh < 0) continue;
          for (std::int64_t kw = 0; kw < g.kernel_w; ++kw) {
            const std::int64_t ow = g.out_column(iw, kw);
            if (ow < 0) continue;
            const T* const pixel = dy + g.y_pixel(n, oh, ow);
            for (std::int64_t o = 0; o < g.out_c; ++o) {
              add_scaled(static_cast<double>(pixel[o]), w + g.w_tap(o, kh, kw), sums.data() + g.group_begin(o),
                         g.in_group);
            }
          }
        }
        T* const out = dx + g.x_pixel(n, ih, iw);
        for (std::int64_t i = 0; i < g.in_c; ++i) out[i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
      }
    }
  });
}

// dw[o,kh,kw,i] = sum over (n,oh,ow) of dy[n,oh,ow,o] * x[n,ih,iw,i]; db[o] = sum over (n,oh,ow) of dy. Threads share
// the output channels, so the sums do not depend on their number.
template <class T>
void backward_weight(const ConvBackwardWeightCall& call) {
  const Geometry g(call.sizes);
  const bool add = call.mode == WriteMode::add;
  const T* const x = call.x.host_data<T>();
  const T* const dy = call.dy.host_data<T>();
  T* const dw = call.dw.mutable_host_data<T>();
  T* const db = call.db == nullptr ? nullptr : call.db->mutable_host_data<T>();
  parallel_for(g.out_c, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t w_numel = g.w_tap(1, 0, 0);  // of one output
    std::vector<double> sums(static_cast<std::size_t>(w_numel));
    for (std::int64_t o = begin; o < end; ++o) {
      std::fill(sums.begin(), sums.end(), 0.0);
      double bias_sum = 0;
      for (std::int64_t row = 0; row < g.batch * g.out_h; ++row) {
        const std::int64_t n = row / g.out_h, oh = row % g.out_h;
        for (std::int64_t ow = 0; ow < g.out_w; ++ow) {
          const auto gradient = static_cast<double>(dy[g.y_pixel(n, oh, ow) + o]);
          bias_sum += gradient;
          for (std::int64_t kh = 0; kh < g.kernel_h; ++kh) {
            const std::int64_t ih = g.in_row(oh, kh);
            if (ih < 0) continue;
            for (std::int64_t kw = 0; kw < g.kernel_w; ++kw) {
              const std::int64_t iw = g.in_column(ow, kw);
              if (iw < 0) continue;
              add_scaled(gradient, x + g.x_pixel(n, ih, iw) + g.group_begin(o), sums.data() + g.w_tap(0, kh, kw),
                         g.in_group);
            }
          }
        }
      }
      T* const out = dw + o * w_numel;
      for (std::int64_t i = 0; i < w_numel; ++i) {
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
