#include <algorithm>
#include <cmath>

#include "reference/reference.h"

namespace heddle::reference {
namespace {

struct Window {
  std::int64_t begin, end;  // inside the input
  std::int64_t start;       // of the unclipped window
  std::int64_t padded;      // length with padding, without what lies beyond it
};

std::int64_t output_size(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding, bool ceil) {
  const std::int64_t room = in + 2 * padding - kernel;
  std::int64_t out = room / stride + 1;
  if (ceil && room % stride != 0) ++out;
  // Dropped: a last window that starts at or beyond input + left padding, counted from the padded edge.
  if (ceil && (out - 1) * stride >= in + padding) --out;
  return out;
}

Window window_of(std::int64_t i, std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const std::int64_t start = i * stride - padding, end = std::min(start + kernel, in + padding);
  return {std::max<std::int64_t>(start, 0), std::min(end, in), start, end - start};
}

Window adaptive_window(std::int64_t i, std::int64_t in, std::int64_t out) {
  const std::int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
  return {begin, end, begin, end - begin};
}

// Calls body(n, oh, ow, c, rows, columns) for every output element.
template <class Rows, class Columns, class Body>
void for_each_output(const Shape& y, Rows rows, Columns columns, Body body) {
  for (std::int64_t n = 0; n < y[0]; ++n) {
    for (std::int64_t oh = 0; oh < y[1]; ++oh) {
      for (std::int64_t ow = 0; ow < y[2]; ++ow) {
        for (std::int64_t c = 0; c < y[3]; ++c) body(n, oh, ow, c, rows(oh), columns(ow));
      }
    }
  }
}

struct Winner {
  double value = 0;
  std::int64_t h = -1, w = -1;
};

// The first NaN, else the first largest element.
Winner winner(const Array& x, std::int64_t n, std::int64_t c, const Window& rows, const Window& columns) {
  Winner best;
  for (std::int64_t h = rows.begin; h < rows.end; ++h) {
    for (std::int64_t w = columns.begin; w < columns.end; ++w) {
      const double v = x.at(n, h, w, c);
      if (best.h < 0 || v > best.value || (std::isnan(v) && !std::isnan(best.value))) best = {v, h, w};
    }
  }
  return best;
}

auto row_windows(const Shape& x, const Pool2dParams& p) {
  return [in = x[1], p](std::int64_t i) { return window_of(i, in, p.kernel_h, p.stride_h, p.padding_h); };
}
auto column_windows(const Shape& x, const Pool2dParams& p) {
  return [in = x[2], p](std::int64_t i) { return window_of(i, in, p.kernel_w, p.stride_w, p.padding_w); };
}
auto adaptive_windows(std::int64_t in, std::int64_t out) {
  return [in, out](std::int64_t i) { return adaptive_window(i, in, out); };
}

double divisor(const Window& rows, const Window& columns, bool count_include_pad) {
  return count_include_pad ? static_cast<double>(rows.padded * columns.padded)
                           : static_cast<double>((rows.end - rows.begin) * (columns.end - columns.begin));
}

template <class Rows, class Columns>
Array average(const Array& x, const Shape& y_shape, Rows rows, Columns columns, bool count_include_pad) {
  Array y(y_shape);
  for_each_output(y.shape, rows, columns, [&](auto n, auto oh, auto ow, auto c, const Window& r, const Window& q) {
    double sum = 0;
    for (std::int64_t h = r.begin; h < r.end; ++h) {
      for (std::int64_t w = q.begin; w < q.end; ++w) sum += x.at(n, h, w, c);
    }
    y.at(n, oh, ow, c) = sum / divisor(r, q, count_include_pad);
  });
  return y;
}

template <class Rows, class Columns>
Array average_backward(const Array& dy, const Shape& x_shape, Rows rows, Columns columns, bool count_include_pad) {
  Array dx(x_shape);
  for_each_output(dy.shape, rows, columns, [&](auto n, auto oh, auto ow, auto c, const Window& r, const Window& q) {
    for (std::int64_t h = r.begin; h < r.end; ++h) {
      for (std::int64_t w = q.begin; w < q.end; ++w) {
        dx.at(n, h, w, c) += dy.at(n, oh, ow, c) / divisor(r, q, count_include_pad);
      }
    }
  });
  return dx;
}

}  // namespace

Shape pool2d_output_shape(const Shape& x, const Pool2dParams& p) {
  return {x[0], output_size(x[1], p.kernel_h, p.stride_h, p.padding_h, p.ceil_mode),
          output_size(x[2], p.kernel_w, p.stride_w, p.padding_w, p.ceil_mode), x[3]};
}

MaxPool max_pool2d_forward(const Array& x, const Pool2dParams& p, bool relu) {
  const Shape shape = pool2d_output_shape(x.shape, p);
  MaxPool result{Array(shape), Array(shape)};
  for_each_output(shape, row_windows(x.shape, p), column_windows(x.shape, p),
                  [&](auto n, auto oh, auto ow, auto c, const Window& r, const Window& q) {
                    const Winner best = winner(x, n, c, r, q);
                    result.y.at(n, oh, ow, c) = relu && best.value <= 0 ? 0 : best.value;
                    result.argmax.at(n, oh, ow, c) =
                        static_cast<double>((best.h - r.start) * p.kernel_w + best.w - q.start);
                  });
  return result;
}

Array max_pool2d_backward(const Array& dy, const Array& x, const Pool2dParams& p, bool relu) {
  Array dx(x.shape);
  for_each_output(dy.shape, row_windows(x.shape, p), column_windows(x.shape, p),
                  [&](auto n, auto oh, auto ow, auto c, const Window& r, const Window& q) {
                    const Winner best = winner(x, n, c, r, q);
                    if (!relu || best.value > 0) dx.at(n, best.h, best.w, c) += dy.at(n, oh, ow, c);
                  });
  return dx;
}

Array avg_pool2d_forward(const Array& x, const Pool2dParams& p) {
  return average(x, pool2d_output_shape(x.shape, p), row_windows(x.shape, p), column_windows(x.shape, p),
                 p.count_include_pad);
}

Array avg_pool2d_backward(const Array& dy, const Pool2dParams& p, const Array& relu_mask, const Shape& x_shape) {
  Array dx = average_backward(dy, x_shape, row_windows(x_shape, p), column_windows(x_shape, p), p.count_include_pad);
  if (relu_mask.defined()) {
    for (std::int64_t i = 0; i < dx.numel(); ++i) {
      if (!(relu_mask[i] > 0)) dx[i] = 0;
    }
  }
  return dx;
}

MaxPool adaptive_max_pool2d_forward(const Array& x, std::int64_t out_h, std::int64_t out_w) {
  const Shape shape{x.dim(0), out_h, out_w, x.dim(3)};
  MaxPool result{Array(shape), Array(shape)};
  for_each_output(shape, adaptive_windows(x.dim(1), out_h), adaptive_windows(x.dim(2), out_w),
                  [&](auto n, auto oh, auto ow, auto c, const Window& r, const Window& q) {
                    const Winner best = winner(x, n, c, r, q);
                    result.y.at(n, oh, ow, c) = best.value;
                    result.argmax.at(n, oh, ow, c) = static_cast<double>(best.h * x.dim(2) + best.w);
                  });
  return result;
}

Array adaptive_max_pool2d_backward(const Array& dy, const Array& x) {
  Array dx(x.shape);
  for_each_output(dy.shape, adaptive_windows(x.dim(1), dy.dim(1)), adaptive_windows(x.dim(2), dy.dim(2)),
                  [&](auto n, auto oh, auto ow, auto c, const Window& r, const Window& q) {
                    const Winner best = winner(x, n, c, r, q);
                    dx.at(n, best.h, best.w, c) += dy.at(n, oh, ow, c);
                  });
  return dx;
}

Array adaptive_avg_pool2d_forward(const Array& x, std::int64_t out_h, std::int64_t out_w) {
  return average(x, {x.dim(0), out_h, out_w, x.dim(3)}, adaptive_windows(x.dim(1), out_h),
                 adaptive_windows(x.dim(2), out_w), false);
}

Array adaptive_avg_pool2d_backward(const Array& dy, const Shape& x_shape) {
  return average_backward(dy, x_shape, adaptive_windows(x_shape[1], dy.dim(1)), adaptive_windows(x_shape[2], dy.dim(2)),
                          false);
}

}  // namespace heddle::reference
