// The operands of a convolution seen as a matrix product (see tile_gemm.cuh): addresses are worked out while reading,
// nothing is copied. z is the group.
#pragma once

#include "conv2d_geometry.cuh"
#include "vector4.cuh"

namespace heddle::cuda::device {

// Four neighbours at the addresses element(0) to element(3), of which null ones are zero; element(0) alone if `wide`.
template <class Element>
__device__ inline Four gather_four(bool wide, const Element& element) {
  Four four = {};
  if (wide) {
    const auto* const place = element(0);
    return place == nullptr ? four : load_four(place);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto* const place = element(i);
    if (place != nullptr) four.v[i] = widen(*place);
  }
  return four;
}

// Forward, A: row = output pixel, k = (kernel row, kernel column, input channel): what the window of the pixel sees.
template <class T>
struct ConvWindowOperand {
  static constexpr bool kAlongK = true;
  const T* x;
  ConvGeometry g;
  int wide;  // four channels from a multiple of four on are in one pixel and aligned

  struct Cursor {
    const T* image;  // null outside
    int h, w;        // of the window's first element
  };
  __device__ Cursor at(int row, int z) const {
    const int pixels = g.out_h * g.out_w, n = row / pixels, pixel = row % pixels;
    if (n >= g.batch) return {nullptr, 0, 0};
    return {x + static_cast<long long>(n) * g.in_h * g.in_w * g.in_c + z * g.group_in_c,
            pixel / g.out_w * g.stride_h - g.padding_h, pixel % g.out_w * g.stride_w - g.padding_w};
  }
  __device__ const T* element(const Cursor& cursor, int k) const {
    const int c = k % g.group_in_c, tap = k / g.group_in_c;
    const int h = cursor.h + tap / g.kernel_w * g.dilation_h, w = cursor.w + tap % g.kernel_w * g.dilation_w;
    if (tap >= g.kernel_h * g.kernel_w || h < 0 || h >= g.in_h || w < 0 || w >= g.in_w) return nullptr;
    return cursor.image + (static_cast<long long>(h) * g.in_w + w) * g.in_c + c;
  }
  __device__ Four load(const Cursor& cursor, int k) const {
    if (cursor.image == nullptr) return {};
    return gather_four(wide != 0, [&](int i) { return element(cursor, k + i); });
  }
};

// Data gradient, A: row = input pixel, k = (kernel row, kernel column, output channel): the gradient of the window that
// sees the pixel with that kernel element.
template <class T>
struct ConvSeenByOperand {
  static constexpr bool kAlongK = true;
  const T* dy;
  ConvGeometry g;
  int wide;

  struct Cursor {
    const T* image;
    int h, w;
  };
  __device__ Cursor at(int row, int z) const {
    const int pixels = g.in_h * g.in_w, n = row / pixels, pixel = row % pixels;
    if (n >= g.batch) return {nullptr, 0, 0};
    return {dy + static_cast<long long>(n) * g.out_h * g.out_w * g.out_c + z * g.group_out_c,
            pixel / g.in_w + g.padding_h, pixel % g.in_w + g.padding_w};
  }
  __device__ const T* element(const Cursor& cursor, int k) const {
    const int c = k % g.group_out_c, tap = k / g.group_out_c;
    const int h = cursor.h - tap / g.kernel_w * g.dilation_h, w = cursor.w - tap % g.kernel_w * g.dilation_w;
    if (tap >= g.kernel_h * g.kernel_w || h < 0 || w < 0 || h % g.stride_h != 0 || w % g.stride_w != 0) return nullptr;
    const int out_h = h / g.stride_h, out_w = w / g.stride_w;
    if (out_h >= g.out_h || out_w >= g.out_w) return nullptr;
    return cursor.image + (static_cast<long long>(out_h) * g.out_w + out_w) * g.out_c + c;
  }
  __device__ Four load(const Cursor& cursor, int k) const {
    if (cursor.image == nullptr) return {};
    return gather_four(wide != 0, [&](int i) { return element(cursor, k + i); });
  }
};

// Data gradient, B: row = input channel, k as above; four channels at a time.
template <class T>
struct ConvTransposedWeights {
  static constexpr bool kAlongK = false;
  const T* w;
  ConvGeometry g;
  int wide;

  struct Cursor {
    const T* group;
    int channel;
  };
  __device__ Cursor at(int row, int z) const {
    const long long weights = static_cast<long long>(g.group_out_c) * g.kernel_h * g.kernel_w * g.group_in_c;
    return {w + z * weights, row};
  }
  __device__ Four load(const Cursor& cursor, int k) const {
    const int taps = g.kernel_h * g.kernel_w, o = k % g.group_out_c, tap = k / g.group_out_c;
    if (tap >= taps) return {};
    return load_up_to_four(cursor.group + (static_cast<long long>(o) * taps + tap) * g.group_in_c + cursor.channel,
                           g.group_in_c - cursor.channel, wide != 0);
  }
};

// Weight gradient, B: row = (kernel row, kernel column, input channel), k = output pixel; four rows at a time.
template <class T>
struct ConvSeenOperand {
  static constexpr bool kAlongK = false;
  const T* x;
  ConvGeometry g;
  int wide;

  struct Cursor {
    const T* group;
    int row;
  };
  __device__ Cursor at(int row, int z) const { return {x + z * g.group_in_c, row}; }
  __device__ Four load(const Cursor& cursor, int k) const {
    const int pixels = g.out_h * g.out_w, n = k / pixels, pixel = k % pixels;
    if (n >= g.batch) return {};
    const T* const image = cursor.group + static_cast<long long>(n) * g.in_h * g.in_w * g.in_c;
    const int h0 = pixel / g.out_w * g.stride_h - g.padding_h, w0 = pixel % g.out_w * g.stride_w - g.padding_w;
    return gather_four(wide != 0, [&](int i) -> const T* {
      const int c = (cursor.row + i) % g.group_in_c, tap = (cursor.row + i) / g.group_in_c;
      const int h = h0 + tap / g.kernel_w * g.dilation_h, w = w0 + tap % g.kernel_w * g.dilation_w;
      if (tap >= g.kernel_h * g.kernel_w || h < 0 || h >= g.in_h || w < 0 || w >= g.in_w) return nullptr;
      return image + (static_cast<long long>(h) * g.in_w + w) * g.in_c + c;
    });
  }
};

}  // namespace heddle::cuda::device
