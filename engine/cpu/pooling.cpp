// Max, average and adaptive pooling. Used through CpuBackend. Rows, best first: the SIMD table for f32 in store mode
// with u8 positions, then the loops here. Backward passes gather: every input element adds up the windows that cover
// it, in their order, so the result does not depend on threads.
#include <array>

#include "engine/core/parallel.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/pooling_axis.h"
#include "engine/cpu/simd/simd_kernels.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

constexpr std::int64_t kChannels = 64;  // channels handled together, in local arrays

// argmax of a window without a winner, as in the SIMD table: no element, or a ReLU and none above 0.
template <class P>
constexpr P kNone = static_cast<P>(-1);
static_assert(kNone<std::uint8_t> == simd::kNoWinner);

SlidingAxis rows_of(const Shape& x, const Shape& y, const Pool2dParams& p) {
  return {x[1], y[1], p.kernel_h, p.stride_h, p.padding_h};
}
SlidingAxis columns_of(const Shape& x, const Shape& y, const Pool2dParams& p) {
  return {x[2], y[2], p.kernel_w, p.stride_w, p.padding_w};
}

simd::PoolShape simd_shape(const Shape& x, const Shape& y, const Pool2dParams& p) {
  return {.in_h = x[1],
          .in_w = x[2],
          .out_h = y[1],
          .out_w = y[2],
          .channels = x[3],
          .kernel_h = p.kernel_h,
          .kernel_w = p.kernel_w,
          .stride_h = p.stride_h,
          .stride_w = p.stride_w,
          .pad_h = p.padding_h,
          .pad_w = p.padding_w,
          .count_include_pad = p.count_include_pad};
}
// Images that make a worthwhile part of a parallel loop.
std::int64_t image_grain(const Shape& x) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, x[1] * x[2] * x[3]));
}

// Calls body(n, row, column, c, width) for every pixel of an image batch (N,H,W,C) and chunk [c, c + width) of
// channels.
template <class Body>
void for_each_pixel(const Shape& shape, std::int64_t work, Body body) {
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  const std::int64_t row_work = std::max<std::int64_t>(1, width * channels * work);
  parallel_for(shape[0] * height, std::max<std::int64_t>(1, kGrain / row_work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   for (std::int64_t w = 0; w < width; ++w) {
                     for (std::int64_t c = 0; c < channels; c += kChannels) {
                       body(r / height, r % height, w, c, std::min(kChannels, channels - c));
                     }
                   }
                 }
               });
}

// y and argmax (of element type P, may be null). `pitch`: argmax steps of one row.
template <class T, class P, class Axis>
void max_forward(const Tensor& x, const Axis& rows, const Axis& columns, std::int64_t pitch, bool relu, Tensor& y,
                 P* argmax) {
  using C = Compute<T>;
  const T* const px = data_of<T>(x);
  T* const py = data_of<T>(y);
  const std::int64_t channels = x.dim(3);
  for_each_pixel(
      y.shape(), pitch, [&](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t c, std::int64_t width) {
        std::array<C, kChannels> best{};
        std::array<std::int32_t, kChannels> at;
        at.fill(-1);
        for (std::int64_t h = rows.begin(oh); h < rows.end(oh); ++h) {
          for (std::int64_t w = columns.begin(ow); w < columns.end(ow); ++w) {
            const T* const from = px + ((n * rows.in + h) * columns.in + w) * channels + c;
            const auto position = static_cast<std::int32_t>((h - rows.origin(oh)) * pitch + w - columns.origin(ow));
            for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
              const C value = load(from[i]);
              // The first of equal elements wins, and the first NaN wins over all.
              if (at[i] < 0 || value > best[i] || (value != value && best[i] == best[i])) {
                best[i] = value;
                at[i] = position;
              }
            }
          }
        }
        const std::int64_t to = ((n * rows.out + oh) * columns.out + ow) * channels + c;
        for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
          const bool cut = relu && best[i] <= 0;
          py[to + static_cast<std::int64_t>(i)] = convert_to<T>(cut ? C(0) : best[i]);
          if (argmax != nullptr)
            argmax[to + static_cast<std::int64_t>(i)] = cut || at[i] < 0 ? kNone<P> : static_cast<P>(at[i]);
        }
      });
}

// Adds term(oh, ow, index of the window's first channel, sums, width) over all windows that cover a pixel, and writes
// the sums to dx, zeroed where relu_mask is not above 0.
template <class T, class Axis, class Term>
void backward(const Axis& rows, const Axis& columns, const Tensor& relu_mask, Tensor& dx, WriteMode mode, Term term) {
  using C = Compute<T>;
  T* const pdx = data_of<T>(dx);
  const T* const mask = relu_mask.defined() ? data_of<T>(relu_mask) : nullptr;
  const std::int64_t channels = dx.dim(3);
  for_each_pixel(dx.shape(), 4,
                 [&](std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c, std::int64_t width) {
                   std::array<C, kChannels> sums{};
                   const std::int64_t last_h = rows.last(h), last_w = columns.last(w);
                   for (std::int64_t oh = rows.first(h); oh < last_h; ++oh) {
                     for (std::int64_t ow = columns.first(w); ow < last_w; ++ow) {
                       term(h, w, oh, ow, ((n * rows.out + oh) * columns.out + ow) * channels + c, sums,
                            static_cast<std::size_t>(width));
                     }
                   }
                   const std::int64_t to = ((n * rows.in + h) * columns.in + w) * channels + c;
                   for (std::int64_t i = 0; i < width; ++i) {
                     C sum = sums[static_cast<std::size_t>(i)];
                     if (mask != nullptr && !(load(mask[to + i]) > 0)) sum = 0;
                     if (mode == WriteMode::add) sum += load(pdx[to + i]);
                     pdx[to + i] = convert_to<T>(sum);
                   }
                 });
}

// d max / d x is 1 at the winner.
template <class T, class P, class Axis>
void max_backward(const Tensor& dy, const T* y_of_relu, const P* argmax, const Axis& rows, const Axis& columns,
                  std::int64_t pitch, Tensor& dx, WriteMode mode) {
  const T* const pdy = data_of<T>(dy);
  backward<T>(rows, columns, Tensor(), dx, mode,
              [&](std::int64_t h, std::int64_t w, std::int64_t oh, std::int64_t ow, std::int64_t from, auto& sums,
                  std::size_t width) {
                const auto position = static_cast<P>((h - rows.origin(oh)) * pitch + w - columns.origin(ow));
                for (std::size_t i = 0; i < width; ++i) {
                  const std::int64_t k = from + static_cast<std::int64_t>(i);
                  const bool wins = argmax[k] == position && (y_of_relu == nullptr || !(load(y_of_relu[k]) <= 0));
                  if (wins) sums[i] += load(pdy[k]);
                }
              });
}

template <class Axis>
double divisor(const Axis& rows, const Axis& columns, std::int64_t oh, std::int64_t ow, bool count_include_pad) {
  const std::int64_t n = count_include_pad ? rows.padded_length(oh) * columns.padded_length(ow)
                                           : (rows.end(oh) - rows.begin(oh)) * (columns.end(ow) - columns.begin(ow));
  return static_cast<double>(n);
}

template <class T, class Axis>
void avg_forward(const Tensor& x, const Axis& rows, const Axis& columns, bool count_include_pad, Tensor& y) {
  using C = Compute<T>;
  const T* const px = data_of<T>(x);
  T* const py = data_of<T>(y);
  const std::int64_t channels = x.dim(3);
  for_each_pixel(
      y.shape(), 4, [&](std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t c, std::int64_t width) {
        std::array<C, kChannels> sums{};
        for (std::int64_t h = rows.begin(oh); h < rows.end(oh); ++h) {
          for (std::int64_t w = columns.begin(ow); w < columns.end(ow); ++w) {
            const T* const from = px + ((n * rows.in + h) * columns.in + w) * channels + c;
            for (std::int64_t i = 0; i < width; ++i) sums[static_cast<std::size_t>(i)] += load(from[i]);
          }
        }
        // A window of padding only has an empty sum: 0 whatever the divisor.
        const C factor = static_cast<C>(1 / std::max(1.0, divisor(rows, columns, oh, ow, count_include_pad)));
        T* const to = py + ((n * rows.out + oh) * columns.out + ow) * channels + c;
        for (std::int64_t i = 0; i < width; ++i) to[i] = convert_to<T>(sums[static_cast<std::size_t>(i)] * factor);
      });
}

// d mean / d x is 1 / divisor for every covered element.
template <class T, class Axis>
void avg_backward(const Tensor& dy, const Axis& rows, const Axis& columns, bool count_include_pad,
                  const Tensor& relu_mask, Tensor& dx, WriteMode mode) {
  const T* const pdy = data_of<T>(dy);
  backward<T>(rows, columns, relu_mask, dx, mode,
              [&](std::int64_t, std::int64_t, std::int64_t oh, std::int64_t ow, std::int64_t from, auto& sums,
                  std::size_t width) {
                const auto factor = static_cast<Compute<T>>(1 / divisor(rows, columns, oh, ow, count_include_pad));
                for (std::size_t i = 0; i < width; ++i)
                  sums[i] += load(pdy[from + static_cast<std::int64_t>(i)]) * factor;
              });
}

}  // namespace

void CpuBackend::max_pool2d_forward(const Tensor& x, const Pool2dParams& params, bool relu, Tensor& y, Tensor& argmax) {
  const bool wide = argmax.defined() && argmax.dtype() == DType::i32;
  if (x.dtype() == DType::f32 && !wide && params.kernel_h * params.kernel_w <= 255) {
    const simd::PoolShape shape = simd_shape(x.shape(), y.shape(), params);
    const simd::MaxPoolForward call{.x = data_of<float>(x),
                                    .relu = relu,
                                    .y = data_of<float>(y),
                                    .argmax = argmax.defined() ? data_of<std::uint8_t>(argmax) : nullptr};
    parallel_for(x.dim(0), image_grain(x.shape()), [&](std::int64_t begin, std::int64_t end) {
      simd::simd_kernels().max_pool_forward(shape, call, {begin, end});
    });
    return;
  }
  const SlidingAxis rows = rows_of(x.shape(), y.shape(), params), columns = columns_of(x.shape(), y.shape(), params);
  visit_floats("max_pool2d_forward", x.dtype(), [&]<class T>(TypeTag<T>) {
    if (wide) return max_forward<T>(x, rows, columns, params.kernel_w, relu, y, data_of<std::int32_t>(argmax));
    max_forward<T>(x, rows, columns, params.kernel_w, relu, y,
                   argmax.defined() ? data_of<std::uint8_t>(argmax) : nullptr);
  });
}

void CpuBackend::max_pool2d_backward(const Tensor& dy, const Tensor& y, const Tensor& argmax,
                                     const Pool2dParams& params, Tensor& dx, WriteMode mode) {
  const bool wide = argmax.dtype() == DType::i32;
  if (dy.dtype() == DType::f32 && !wide && mode == WriteMode::store) {
    // Our forward pass leaves no winner where ReLU cuts, so y is not needed.
    const simd::PoolShape shape = simd_shape(dx.shape(), dy.shape(), params);
    const simd::MaxPoolBackward call{.dy = data_of<float>(dy),
                                     .argmax = data_of<std::uint8_t>(argmax),
                                     .relu_mask = nullptr,
                                     .dx = data_of<float>(dx)};
    parallel_for(dx.dim(0), image_grain(dx.shape()), [&](std::int64_t begin, std::int64_t end) {
      simd::simd_kernels().max_pool_backward(shape, call, {begin, end});
    });
    return;
  }
  const SlidingAxis rows = rows_of(dx.shape(), dy.shape(), params);
  const SlidingAxis columns = columns_of(dx.shape(), dy.shape(), params);
  visit_floats("max_pool2d_backward", dy.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const relu_y = y.defined() ? data_of<T>(y) : nullptr;
    const auto run = [&]<class P>(const P* at) {
      max_backward<T>(dy, relu_y, at, rows, columns, params.kernel_w, dx, mode);
    };
    wide ? run(data_of<std::int32_t>(argmax)) : run(data_of<std::uint8_t>(argmax));
  });
}

void CpuBackend::avg_pool2d_forward(const Tensor& x, const Pool2dParams& params, Tensor& y) {
  if (x.dtype() == DType::f32) {
    const simd::PoolShape shape = simd_shape(x.shape(), y.shape(), params);
    const simd::AvgPoolForward call{.x = data_of<float>(x), .y = data_of<float>(y)};
    parallel_for(x.dim(0), image_grain(x.shape()), [&](std::int64_t begin, std::int64_t end) {
      simd::simd_kernels().avg_pool_forward(shape, call, {begin, end});
    });
    return;
  }
  visit_floats("avg_pool2d_forward", x.dtype(), [&]<class T>(TypeTag<T>) {
    avg_forward<T>(x, rows_of(x.shape(), y.shape(), params), columns_of(x.shape(), y.shape(), params),
                   params.count_include_pad, y);
  });
}

void CpuBackend::avg_pool2d_backward(const Tensor& dy, const Pool2dParams& params, const Tensor& relu_mask, Tensor& dx,
                                     WriteMode mode) {
  if (dy.dtype() == DType::f32 && mode == WriteMode::store) {
    const simd::PoolShape shape = simd_shape(dx.shape(), dy.shape(), params);
    const simd::AvgPoolBackward call{.dy = data_of<float>(dy),
                                     .relu_mask = relu_mask.defined() ? data_of<float>(relu_mask) : nullptr,
                                     .dx = data_of<float>(dx)};
    parallel_for(dx.dim(0), image_grain(dx.shape()), [&](std::int64_t begin, std::int64_t end) {
      simd::simd_kernels().avg_pool_backward(shape, call, {begin, end});
    });
    return;
  }
  visit_floats("avg_pool2d_backward", dy.dtype(), [&]<class T>(TypeTag<T>) {
    avg_backward<T>(dy, rows_of(dx.shape(), dy.shape(), params), columns_of(dx.shape(), dy.shape(), params),
                    params.count_include_pad, relu_mask, dx, mode);
  });
}

void CpuBackend::adaptive_pool2d_forward(PoolKind kind, const Tensor& x, Tensor& y, Tensor& argmax) {
  if (y.numel() == 0) return;
  const AdaptiveAxis rows{x.dim(1), y.dim(1)}, columns{x.dim(2), y.dim(2)};
  visit_floats("adaptive_pool2d_forward", x.dtype(), [&]<class T>(TypeTag<T>) {
    if (kind == PoolKind::avg) return avg_forward<T>(x, rows, columns, false, y);
    max_forward<T>(x, rows, columns, columns.in, false, y, argmax.defined() ? data_of<std::int32_t>(argmax) : nullptr);
  });
}

void CpuBackend::adaptive_pool2d_backward(PoolKind kind, const Tensor& dy, const Tensor& argmax, Tensor& dx,
                                          WriteMode mode) {
  const AdaptiveAxis rows{dx.dim(1), dy.dim(1)}, columns{dx.dim(2), dy.dim(2)};
  visit_floats("adaptive_pool2d_backward", dy.dtype(), [&]<class T>(TypeTag<T>) {
    if (kind == PoolKind::avg) return avg_backward<T>(dy, rows, columns, false, Tensor(), dx, mode);
    max_backward<T>(dy, static_cast<const T*>(nullptr), data_of<std::int32_t>(argmax), rows, columns, columns.in, dx,
                    mode);
  });
}

}  // namespace heddle::cpu
