// The simulated cuDNN's convolution, its two gradients, and the matrix product.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/cudasim/cudnn_compute.h"
#include "tests/cudasim/dense_math.h"

namespace cudasim {
namespace {

struct ConvolutionSizes {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;
  std::int64_t out_height = 0, out_width = 0, out_channels = 0;
  std::int64_t kernel_height = 0, kernel_width = 0;
  // Output channels see the input channels of their group alone.
  std::int64_t groups = 1, group_channels = 0, group_outputs = 0;
  std::int64_t pixels() const { return out_height * out_width; }
  // Products that one output element is the sum of.
  std::int64_t depth() const { return kernel_height * kernel_width * group_channels; }
};

ConvolutionSizes sizes_of(const std::vector<std::int64_t>& x, const std::vector<std::int64_t>& w,
                          const std::vector<std::int64_t>& y) {
  return {.images = x[0],
          .height = x[2],
          .width = x[3],
          .channels = x[1],
          .out_height = y[2],
          .out_width = y[3],
          .out_channels = y[1],
          .kernel_height = w[2],
          .kernel_width = w[3],
          .groups = x[1] / w[1],
          .group_channels = w[1],
          .group_outputs = y[1] / (x[1] / w[1])};
}

// Calls visit(place of an input pixel, first channel of its place in a group's columns) for every pair of output
// pixel and tap that meets the image and not its padding. Columns are (output pixel; tap row, tap column, channel).
template <class Visitor>
void for_each_tap(const ConvolutionSizes& sizes, const Operation& operation, const Visitor& visit) {
  const WindowInfo& window = operation.window;
  std::int64_t column = 0;
  for (std::int64_t oy = 0; oy < sizes.out_height; ++oy) {
    for (std::int64_t ox = 0; ox < sizes.out_width; ++ox, column += sizes.depth()) {
      for (std::int64_t ky = 0; ky < sizes.kernel_height; ++ky) {
        const std::int64_t iy = oy * window.stride[0] - window.pre_padding[0] + ky * window.dilation[0];
        if (iy < 0 || iy >= sizes.height) continue;
        const std::int64_t tap_row = operation.flip_window ? sizes.kernel_height - 1 - ky : ky;
        for (std::int64_t kx = 0; kx < sizes.kernel_width; ++kx) {
          const std::int64_t ix = ox * window.stride[1] - window.pre_padding[1] + kx * window.dilation[1];
          if (ix < 0 || ix >= sizes.width) continue;
          const std::int64_t tap_column = operation.flip_window ? sizes.kernel_width - 1 - kx : kx;
          visit((iy * sizes.width + ix) * sizes.channels,
                column + (tap_row * sizes.kernel_width + tap_column) * sizes.group_channels);
        }
      }
    }
  }
}

using Numbers = std::vector<double>;

void gather_columns(const ConvolutionSizes& sizes, const Operation& operation, const double* image, Numbers& columns) {
  std::fill(columns.begin(), columns.end(), 0.0);
  for_each_tap(sizes, operation, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t c = 0; c < sizes.group_channels; ++c) columns[static_cast<std::size_t>(to + c)] = image[from + c];
  });
}

Numbers factors(const Values& values, const ComputeOptions& options) {
  Numbers numbers = values.data;
  if (options.tf32) {
    for (double& number : numbers) number = round_to_tf32(number);
  }
  return numbers;
}

// alpha * result + beta * what the output holds.
void scale_and_store(const Operation& operation, cudnnBackendAttributeName_t role, Values result,
                     TensorTable& tensors) {
  if (operation.alpha != 1) {
    for (double& value : result.data) value *= operation.alpha;
  }
  if (operation.beta != 0) {
    const Values& previous = tensors.input(operation, role);
    for (std::size_t i = 0; i < result.data.size(); ++i) result.data[i] += operation.beta * previous.data[i];
  }
  tensors.output(operation, role, std::move(result));
}

void compute_forward(const Operation& operation, const ComputeOptions& options, TensorTable& tensors) {
  const Values& x = tensors.input(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
  const Values& w = tensors.input(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
  Values y(operation.find(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)->dims);
  const ConvolutionSizes sizes = sizes_of(x.dims, w.dims, y.dims);
  const Numbers image_factors = factors(x, options), filter = factors(w, options);
  Numbers transposed(static_cast<std::size_t>(sizes.group_outputs * sizes.depth()));
  Numbers columns(static_cast<std::size_t>(sizes.pixels() * sizes.depth()));
  for (std::int64_t g = 0; g < sizes.groups; ++g) {
    const double* group_filter = filter.data() + g * sizes.group_outputs * sizes.depth();
    for (std::int64_t o = 0; o < sizes.group_outputs; ++o) {
      for (std::int64_t i = 0; i < sizes.depth(); ++i) {
        transposed[static_cast<std::size_t>(i * sizes.group_outputs + o)] = group_filter[o * sizes.depth() + i];
      }
    }
    for (std::int64_t n = 0; n < sizes.images; ++n) {
      gather_columns(sizes, operation, image_factors.data() + n * x.strides[0] + g * sizes.group_channels, columns);
      add_product({.m = sizes.pixels(),
                   .n = sizes.group_outputs,
                   .k = sizes.depth(),
                   .a_row_stride = sizes.depth(),
                   .b_row_stride = sizes.group_outputs,
                   .c_row_stride = sizes.out_channels},
                  columns.data(), transposed.data(), y.data.data() + n * y.strides[0] + g * sizes.group_outputs);
    }
  }
  scale_and_store(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, std::move(y), tensors);
}

void compute_data_gradient(const Operation& operation, const ComputeOptions& options, TensorTable& tensors) {
  const Values& dy = tensors.input(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
  const Values& w = tensors.input(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
  Values dx(operation.find(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX)->dims);
  const ConvolutionSizes sizes = sizes_of(dx.dims, w.dims, dy.dims);
  const Numbers gradient = factors(dy, options), filter = factors(w, options);
  Numbers columns(static_cast<std::size_t>(sizes.pixels() * sizes.depth()));
  for (std::int64_t g = 0; g < sizes.groups; ++g) {
    for (std::int64_t n = 0; n < sizes.images; ++n) {
      std::fill(columns.begin(), columns.end(), 0.0);
      add_product({.m = sizes.pixels(),
                   .n = sizes.depth(),
                   .k = sizes.group_outputs,
                   .a_row_stride = sizes.out_channels,
                   .b_row_stride = sizes.depth(),
                   .c_row_stride = sizes.depth()},
                  gradient.data() + n * dy.strides[0] + g * sizes.group_outputs,
                  filter.data() + g * sizes.group_outputs * sizes.depth(), columns.data());
      double* image = dx.data.data() + n * dx.strides[0] + g * sizes.group_channels;
      for_each_tap(sizes, operation, [&](std::int64_t to, std::int64_t from) {
        for (std::int64_t c = 0; c < sizes.group_channels; ++c) {
          image[to + c] += columns[static_cast<std::size_t>(from + c)];
        }
      });
    }
  }
  scale_and_store(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, std::move(dx), tensors);
}

void compute_filter_gradient(const Operation& operation, const ComputeOptions& options, TensorTable& tensors) {
  const Values& x = tensors.input(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
  const Values& dy = tensors.input(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  Values dw(operation.find(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW)->dims);
  const ConvolutionSizes sizes = sizes_of(x.dims, dw.dims, dy.dims);
  const Numbers image_factors = factors(x, options), gradient = factors(dy, options);
  Numbers columns(static_cast<std::size_t>(sizes.pixels() * sizes.depth()));
  for (std::int64_t g = 0; g < sizes.groups; ++g) {
    for (std::int64_t n = 0; n < sizes.images; ++n) {
      gather_columns(sizes, operation, image_factors.data() + n * x.strides[0] + g * sizes.group_channels, columns);
      add_product({.m = sizes.group_outputs,
                   .n = sizes.depth(),
                   .k = sizes.pixels(),
                   .a_row_stride = 1,
                   .a_column_stride = sizes.out_channels,
                   .b_row_stride = sizes.depth(),
                   .c_row_stride = sizes.depth()},
                  gradient.data() + n * dy.strides[0] + g * sizes.group_outputs, columns.data(),
                  dw.data.data() + g * sizes.group_outputs * sizes.depth());
    }
  }
  if (options.nondeterministic) {
    static std::minstd_rand random{std::random_device{}()};
    for (double& value : dw.data) {
      // A sum that needs no rounding is the same in any order.
      if (static_cast<double>(static_cast<float>(value)) == value) continue;
      value *= 1 + std::ldexp(static_cast<double>(random() % 3) - 1, -22);
    }
  }
  scale_and_store(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, std::move(dw), tensors);
}

}  // namespace

void compute_convolution(const Operation& operation, const ComputeOptions& options, TensorTable& tensors) {
  switch (operation.kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return compute_data_gradient(operation, options, tensors);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return compute_filter_gradient(operation, options, tensors);
    default: return compute_forward(operation, options, tensors);
  }
}

void compute_matmul(const Operation& operation, const ComputeOptions& options, TensorTable& tensors) {
  const Values& a = tensors.input(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  const Values& b = tensors.input(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  Values c(operation.find(CUDNN_ATTR_OPERATION_MATMUL_CDESC)->dims);
  const Numbers a_factors = factors(a, options), b_factors = factors(b, options);
  for (std::int64_t i = 0; i < c.dims[0]; ++i) {
    const std::int64_t b_index = b.dims[0] == 1 ? 0 : i;
    add_product({.m = c.dims[1],
                 .n = c.dims[2],
                 .k = a.dims[2],
                 .a_row_stride = a.strides[1],
                 .b_row_stride = b.strides[1],
                 .c_row_stride = c.strides[1]},
                a_factors.data() + i * a.strides[0], b_factors.data() + b_index * b.strides[0],
                c.data.data() + i * c.strides[0]);
  }
  tensors.output(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, std::move(c));
}

}  // namespace cudasim
