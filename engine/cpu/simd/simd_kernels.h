// The hand-written CPU kernels: a table of functions on raw pointers, built for several instruction sets from the same
// sources and chosen once at run time. The CPU backend uses it; it knows nothing of tensors and starts no threads.
//
// Common rules. All arrays are dense fp32 unless said otherwise, images are (N,H,W,C), convolution weights
// (out_c,kernel_h,kernel_w,in_c), linear weights (out,in). Nothing is allocated and nothing is thrown: sizes are the
// caller's promise, and `scratch` has the size that the matching *_floats function returns, 64-byte aligned for speed.
// Inputs and outputs may not overlap unless a function says so. A range [begin, end) is one thread's share; different
// ranges of one call write different memory. Results depend on the ranges in weight gradients only, and are bitwise
// equal for equal ranges.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::cpu::simd {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// One image of a convolution with groups 1 and dilation 1. Windows may reach past the input on every side (that part
// reads as 0), so padding below and right follows from out_h and out_w.
struct ConvShape {
  std::int64_t in_h = 0, in_w = 0, in_c = 0;
  std::int64_t out_h = 0, out_w = 0, out_c = 0;
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;  // above and left
};

// y = conv(x, w) + bias, then max(y, 0) if relu.
struct ConvForward {
  const float* x = nullptr;         // (N,in_h,in_w,in_c)
  const float* packed_w = nullptr;  // from conv_pack_forward
  const float* bias = nullptr;      // (out_c) or null
  bool relu = false;
  float* y = nullptr;        // (N,out_h,out_w,out_c)
  float* scratch = nullptr;  // conv_scratch_floats, one per thread
};

// dx = conv_transpose(dy, w), set to 0 where relu_mask is not above 0. Every element of dx in the range is stored.
struct ConvBackwardData {
  const float* dy = nullptr;         // (N,out_h,out_w,out_c)
  const float* packed_w = nullptr;   // from conv_pack_backward
  const float* relu_mask = nullptr;  // laid out like dx, or null: the output of the ReLU that made x
  float* dx = nullptr;               // (N,in_h,in_w,in_c)
  float* scratch = nullptr;
};

// One thread's share of dw and db, stored into `partial` (conv_partial_floats). conv_reduce_partials makes dw and db.
struct ConvBackwardWeight {
  const float* x = nullptr;
  const float* dy = nullptr;
  float* partial = nullptr;
  float* scratch = nullptr;
};

struct ConvReduce {
  const float* partials = nullptr;  // `count` partial buffers, one behind the other; added in this order
  std::int64_t count = 1;
  float* dw = nullptr;
  float* db = nullptr;      // or null
  bool accumulate = false;  // add to dw and db instead of storing
};

struct SimdKernels {
  const char* isa = nullptr;      // "avx512", "avx2" or "baseline"
  std::int64_t image_block = 1;   // convolution ranges run at full speed in multiples of this many images

  std::size_t (*conv_packed_floats)(const ConvShape&) = nullptr;   // either direction
  std::size_t (*conv_scratch_floats)(const ConvShape&) = nullptr;  // enough for all three passes
  std::size_t (*conv_partial_floats)(const ConvShape&) = nullptr;
  void (*conv_pack_forward)(const ConvShape&, const float* w, float* packed) = nullptr;
  void (*conv_pack_backward)(const ConvShape&, const float* w, float* packed) = nullptr;
  void (*conv_forward)(const ConvShape&, const ConvForward&, Range images) = nullptr;
  void (*conv_backward_data)(const ConvShape&, const ConvBackwardData&, Range images) = nullptr;
  void (*conv_backward_weight)(const ConvShape&, const ConvBackwardWeight&, Range images) = nullptr;
  void (*conv_reduce_partials)(const ConvShape&, const ConvReduce&) = nullptr;
};

}  // namespace heddle::cpu::simd
