#include "reference/reference.h"

namespace heddle::reference {
namespace {

std::int64_t output_size(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                         std::int64_t dilation) {
  return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

// Calls term(index in x, index in w, index in y) for every product in the sum that defines the convolution.
template <class Term>
void for_each_term(const Shape& x, const Shape& w, const Shape& y, const Conv2dParams& p, Term term) {
  const std::int64_t out_per_group = w[0] / p.groups, in_per_group = w[3];
  for (std::int64_t n = 0; n < x[0]; ++n) {
    for (std::int64_t oh = 0; oh < y[1]; ++oh) {
      for (std::int64_t ow = 0; ow < y[2]; ++ow) {
        for (std::int64_t o = 0; o < y[3]; ++o) {
          for (std::int64_t kh = 0; kh < w[1]; ++kh) {
            const std::int64_t ih = oh * p.stride_h - p.padding_h + kh * p.dilation_h;
            if (ih < 0 || ih >= x[1]) continue;
            for (std::int64_t kw = 0; kw < w[2]; ++kw) {
              const std::int64_t iw = ow * p.stride_w - p.padding_w + kw * p.dilation_w;
              if (iw < 0 || iw >= x[2]) continue;
              for (std::int64_t i = 0; i < in_per_group; ++i) {
                const std::int64_t ic = o / out_per_group * in_per_group + i;
                term(((n * x[1] + ih) * x[2] + iw) * x[3] + ic, ((o * w[1] + kh) * w[2] + kw) * w[3] + i,
                     ((n * y[1] + oh) * y[2] + ow) * y[3] + o);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace

Shape conv2d_output_shape(const Shape& x, const Shape& w, const Conv2dParams& p) {
  return {x[0], output_size(x[1], w[1], p.stride_h, p.padding_h, p.dilation_h),
          output_size(x[2], w[2], p.stride_w, p.padding_w, p.dilation_w), w[0]};
}

Array conv2d_forward(const Array& x, const Array& w, const Array& bias, const Conv2dParams& params, bool relu) {
  Array y(conv2d_output_shape(x.shape, w.shape, params));
  for_each_term(x.shape, w.shape, y.shape, params,
                [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) { y[yi] += x[xi] * w[wi]; });
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    if (bias.defined()) y[i] += bias[i % w.dim(0)];
    if (relu && y[i] <= 0) y[i] = 0;
  }
  return y;
}

Array conv2d_backward_data(const Array& dy, const Array& w, const Conv2dParams& params, const Array& relu_mask,
                           const Shape& x_shape) {
  Array dx(x_shape);
  for_each_term(x_shape, w.shape, dy.shape, params,
                [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) { dx[xi] += dy[yi] * w[wi]; });
  if (relu_mask.defined()) {
    for (std::int64_t i = 0; i < dx.numel(); ++i) {
      if (!(relu_mask[i] > 0)) dx[i] = 0;
    }
  }
  return dx;
}

Array conv2d_backward_weight(const Array& x, const Array& dy, const Conv2dParams& params, const Shape& w_shape) {
  Array dw(w_shape);
  for_each_term(x.shape, w_shape, dy.shape, params,
                [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) { dw[wi] += dy[yi] * x[xi]; });
  return dw;
}

}  // namespace heddle::reference
