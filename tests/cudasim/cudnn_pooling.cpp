// The simulated cuDNN's pooling and its gradient.
#include <limits>

#include "tests/cudasim/cudnn_compute.h"

namespace cudasim {
namespace {

// Images of both sides of a pooling, with all channels of a pixel next to each other.
struct PoolingSizes {
  std::int64_t images = 0, channels = 0, height = 0, width = 0, out_height = 0, out_width = 0;
};

PoolingSizes sizes_of(const std::vector<std::int64_t>& x, const std::vector<std::int64_t>& y) {
  return {.images = x[0], .channels = x[1], .height = x[2], .width = x[3], .out_height = y[2], .out_width = y[3]};
}

// One position of the window: the part of the image that it covers, and where in the window that part begins.
struct Cover {
  std::int64_t y_begin = 0, y_end = 0, x_begin = 0, x_end = 0;
  std::int64_t window_y = 0, window_x = 0;
  std::int64_t pixels() const { return (y_end - y_begin) * (x_end - x_begin); }
};

Cover cover(const PoolingSizes& sizes, const WindowInfo& window, std::int64_t oy, std::int64_t ox) {
  const std::int64_t y = oy * window.stride[0] - window.pre_padding[0];
  const std::int64_t x = ox * window.stride[1] - window.pre_padding[1];
  Cover result;
  result.y_begin = std::max<std::int64_t>(y, 0);
  result.y_end = std::min(y + window.size[0], sizes.height);
  result.x_begin = std::max<std::int64_t>(x, 0);
  result.x_end = std::min(x + window.size[1], sizes.width);
  result.window_y = y;
  result.window_x = x;
  return result;
}

// Calls visit(image, output pixel's first channel, cover) for every output pixel.
template <class Visitor>
void for_each_position(const PoolingSizes& sizes, const WindowInfo& window, const Visitor& visit) {
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < sizes.images; ++n) {
    for (std::int64_t oy = 0; oy < sizes.out_height; ++oy) {
      for (std::int64_t ox = 0; ox < sizes.out_width; ++ox, at += sizes.channels) {
        visit(n, at, cover(sizes, window, oy, ox));
      }
    }
  }
}

double divisor(const ResampleInfo& resample, const Cover& covered) {
  const bool excluding = resample.mode == CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING;
  return static_cast<double>(excluding ? covered.pixels() : resample.window.size[0] * resample.window.size[1]);
}

void compute_forward(const Operation& operation, TensorTable& tensors) {
  const ResampleInfo& resample = operation.resample;
  const Values& x = tensors.input(operation, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC);
  Values y(operation.find(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC)->dims);
  Values index(y.dims);
  const PoolingSizes sizes = sizes_of(x.dims, y.dims);
  const bool maximum = resample.mode == CUDNN_RESAMPLE_MAXPOOL;
  for_each_position(sizes, resample.window, [&](std::int64_t n, std::int64_t at, const Cover& covered) {
    for (std::int64_t c = 0; c < sizes.channels; ++c) {
      double best = maximum ? -std::numeric_limits<double>::infinity() : 0;
      double best_index = 0;
      for (std::int64_t iy = covered.y_begin; iy < covered.y_end; ++iy) {
        for (std::int64_t ix = covered.x_begin; ix < covered.x_end; ++ix) {
          const double value =
              x.data[static_cast<std::size_t>(n * x.strides[0] + iy * x.strides[2] + ix * x.strides[3] + c)];
          if (!maximum) {
            best += value;
          } else if (value > best || value != value) {
            // The first of equal ones stays; a NaN beats every number.
            best = value;
            best_index = static_cast<double>((iy - covered.window_y) * resample.window.size[1] + ix - covered.window_x);
          }
        }
      }
      y.data[static_cast<std::size_t>(at + c)] = maximum ? best : best / divisor(resample, covered);
      index.data[static_cast<std::size_t>(at + c)] = best_index;
    }
  });
  tensors.output(operation, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, std::move(y));
  tensors.output(operation, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, std::move(index));
}

void compute_gradient(const Operation& operation, TensorTable& tensors) {
  const ResampleInfo& resample = operation.resample;
  const Values& dy = tensors.input(operation, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC);
  Values dx(operation.find(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC)->dims);
  const PoolingSizes sizes = sizes_of(dx.dims, dy.dims);
  const bool maximum = resample.mode == CUDNN_RESAMPLE_MAXPOOL;
  const Values* index = maximum ? &tensors.input(operation, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC) : nullptr;
  const auto dx_at = [&](std::int64_t n, std::int64_t iy, std::int64_t ix, std::int64_t c) -> double& {
    return dx.data[static_cast<std::size_t>(n * dx.strides[0] + iy * dx.strides[2] + ix * dx.strides[3] + c)];
  };
  for_each_position(sizes, resample.window, [&](std::int64_t n, std::int64_t at, const Cover& covered) {
    for (std::int64_t c = 0; c < sizes.channels; ++c) {
      const double gradient = dy.data[static_cast<std::size_t>(at + c)];
      if (maximum) {
        const auto chosen = static_cast<std::int64_t>(index->data[static_cast<std::size_t>(at + c)]);
        const std::int64_t iy = covered.window_y + chosen / resample.window.size[1];
        const std::int64_t ix = covered.window_x + chosen % resample.window.size[1];
        const bool inside = iy >= covered.y_begin && iy < covered.y_end && ix >= covered.x_begin && ix < covered.x_end;
        if (chosen >= 0 && inside) dx_at(n, iy, ix, c) += gradient;
        continue;
      }
      for (std::int64_t iy = covered.y_begin; iy < covered.y_end; ++iy) {
        for (std::int64_t ix = covered.x_begin; ix < covered.x_end; ++ix) {
          dx_at(n, iy, ix, c) += gradient / divisor(resample, covered);
        }
      }
    }
  });
  tensors.output(operation, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, std::move(dx));
}

}  // namespace

void compute_pooling(const Operation& operation, TensorTable& tensors) {
  if (operation.kind == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR) {
    compute_forward(operation, tensors);
  } else {
    compute_gradient(operation, tensors);
  }
}

}  // namespace cudasim
