// The geometry of a pooling of images (N,H,W,C): which input positions a window covers, and which windows cover an
// input position. Made on the host, passed to kernels by value. Windows are clipped to the input.
#pragma once

#include "kernels/device/divider.cuh"

namespace heddle::cuda {

// One axis. Sliding windows have a fixed size at a fixed distance; window i of an adaptive axis is
// [floor(i * in / out), ceil((i + 1) * in / out)).
struct PoolAxis {
  std::int32_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0;
  bool adaptive = false;

  // Where positions inside a window count from: the window's first element, which may lie in the padding, or the
  // image's corner if adaptive.
  __device__ std::int32_t origin(std::int32_t i) const { return adaptive ? 0 : i * stride - padding; }
  __device__ std::int32_t begin(std::int32_t i) const {
    if (adaptive) return static_cast<std::int32_t>(std::int64_t{i} * in / out);
    return origin(i) > 0 ? origin(i) : 0;
  }
  __device__ std::int32_t end(std::int32_t i) const {
    if (adaptive) return static_cast<std::int32_t>(((std::int64_t{i} + 1) * in + out - 1) / out);
    return origin(i) + kernel < in ? origin(i) + kernel : in;
  }
  // Elements of the window with padding, but without what lies beyond it.
  __device__ std::int32_t padded_length(std::int32_t i) const {
    if (adaptive) return end(i) - begin(i);
    return (origin(i) + kernel < in + padding ? origin(i) + kernel : in + padding) - origin(i);
  }
  // Windows [first, last) cover input position j.
  __device__ std::int32_t first(std::int32_t j) const {
    if (adaptive) return static_cast<std::int32_t>(std::int64_t{j} * out / in);
    const std::int32_t beyond = j + padding - kernel;  // the last start that ends before j
    if (beyond < 0) return 0;
    return beyond / stride + 1 < out ? beyond / stride + 1 : out;
  }
  __device__ std::int32_t last(std::int32_t j) const {
    if (adaptive) return static_cast<std::int32_t>(((std::int64_t{j} + 1) * out - 1) / in) + 1;
    return (j + padding) / stride + 1 < out ? (j + padding) / stride + 1 : out;
  }
};

// Where a thread's pack of channels lies: image n, pixel (row, column), first channel.
struct PoolPlace {
  std::int64_t n;
  std::int32_t row, column, channel;
};

struct PoolShape {
  PoolAxis rows, columns;
  std::int32_t channels = 1;
  std::int32_t pitch = 1;  // steps in argmax of one row
  bool count_include_pad = false;
  // Of the images that the kernel writes: packs of channels in a pixel, pixels in a row, rows in an image.
  Divider packs, width, height;

  // Pack i of an image batch with N channels each.
  template <int N>
  __device__ PoolPlace place(std::int64_t i) const {
    std::int64_t pixel = packs.split(i), row = width.split(pixel);
    const std::int64_t n = height.split(row);
    return {n, static_cast<std::int32_t>(row), static_cast<std::int32_t>(pixel), static_cast<std::int32_t>(i) * N};
  }
  __device__ std::int64_t input(std::int64_t n, std::int32_t row, std::int32_t column, std::int32_t channel) const {
    return ((n * rows.in + row) * columns.in + column) * channels + channel;
  }
  __device__ std::int64_t output(std::int64_t n, std::int32_t row, std::int32_t column, std::int32_t channel) const {
    return ((n * rows.out + row) * columns.out + column) * channels + channel;
  }
  // The divisor of an average, as a factor. A window of padding only has an empty sum: 0 whatever the factor.
  __device__ float average_factor(std::int32_t row, std::int32_t column) const {
    const std::int32_t count = count_include_pad
                                   ? rows.padded_length(row) * columns.padded_length(column)
                                   : (rows.end(row) - rows.begin(row)) * (columns.end(column) - columns.begin(column));
    return 1.0f / static_cast<float>(count > 1 ? count : 1);
  }
};

}  // namespace heddle::cuda
