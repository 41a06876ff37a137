// Max and average pooling of images (N,H,W,C). Pointers are device memory. Nothing waits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/functions.cuh"

namespace heddle::cuda {

// Images and windows. Of one image in_h * in_w fits in 31 bits. adaptive: kernel, stride and padding do not count.
struct PoolGeometry {
  std::int64_t batch = 1, in_h = 1, in_w = 1, out_h = 1, out_w = 1, channels = 1;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, padding_h = 0, padding_w = 0;
  bool adaptive = false;
  bool count_include_pad = false;  // the divisor of an average counts padding

  std::int64_t in_numel() const { return batch * in_h * in_w * channels; }
  std::int64_t out_numel() const { return batch * out_h * out_w * channels; }
};

// Positions of winners, y's size, as u8 or i32: row * kernel_w + column inside the window, or row * in_w + column
// inside the image if adaptive; all bits set where a window has no winner.
struct PoolArgmax {
  void* data = nullptr;  // null: none wanted
  ElementType type = ElementType::u8;
};

// T: float, __nv_bfloat16, here and below. relu: y = max(0, .), and no winner where that cuts.
template <class T>
void max_pool_forward(const T* x, const PoolGeometry& geometry, bool relu, T* y, const PoolArgmax& argmax,
                      cudaStream_t stream);
// dx (=|+=) gradient. argmax must be that of max_pool_forward.
template <class T>
void max_pool_backward(const T* dy, const PoolArgmax& argmax, const PoolGeometry& geometry, T* dx, bool add,
                       cudaStream_t stream);
template <class T>
void avg_pool_forward(const T* x, const PoolGeometry& geometry, T* y, cudaStream_t stream);
// relu_mask: null, or of dx's size: the gradient counts only where it is above 0.
template <class T>
void avg_pool_backward(const T* dy, const T* relu_mask, const PoolGeometry& geometry, T* dx, bool add,
                       cudaStream_t stream);

}  // namespace heddle::cuda
