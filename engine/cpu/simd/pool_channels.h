// What both kinds of pooling share: loops over the channels of a pixel (full vectors, then one short one), and the
// backward pass of 2x2 windows.
#pragma once

#include "kernels.h"
#include "lanes.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

struct AllLanes {
  HEDDLE_INLINE Vec get(const float* p) const { return load(p); }
  HEDDLE_INLINE void put(float* p, Vec v) const { store(p, v); }
  HEDDLE_INLINE IntVec get_bytes(const std::uint8_t* p) const { return load_bytes(p); }
  HEDDLE_INLINE void put_bytes(std::uint8_t* p, IntVec v) const { store_bytes(p, v); }
};

// The first `count` lanes; touches no memory behind them.
struct FirstLanes {
  std::int64_t count;
#if HEDDLE_SIMD_LANES == 16
  HEDDLE_INLINE __mmask16 mask() const { return static_cast<__mmask16>((1u << count) - 1u); }
  HEDDLE_INLINE IntVec get_bytes(const std::uint8_t* p) const {
    return __builtin_convertvector(reinterpret_cast<ByteVec>(_mm_maskz_loadu_epi8(mask(), p)), IntVec);
  }
  HEDDLE_INLINE void put_bytes(std::uint8_t* p, IntVec v) const {
    _mm_mask_storeu_epi8(p, mask(), reinterpret_cast<__m128i>(__builtin_convertvector(v, ByteVec)));
  }
#else
  HEDDLE_INLINE IntVec get_bytes(const std::uint8_t* p) const {
    IntVec v = {};
    for (std::int64_t i = 0; i < count; ++i) v[i] = p[i];
    return v;
  }
  HEDDLE_INLINE void put_bytes(std::uint8_t* p, IntVec v) const {
    for (std::int64_t i = 0; i < count; ++i) p[i] = static_cast<std::uint8_t>(v[i]);
  }
#endif
  HEDDLE_INLINE Vec get(const float* p) const { return load_first(p, count); }
  HEDDLE_INLINE void put(float* p, Vec v) const { store_first(p, v, count); }
};

// body(first channel, lanes)
template <class Body>
HEDDLE_INLINE void for_channels(std::int64_t channels, const Body& body) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) body(c, AllLanes{});
  if (c < channels) body(c, FirstLanes{channels - c});
}

// The windows o in [begin, end) that cover an input position.
struct WindowRange {
  std::int64_t begin, end;
};

// position is the input index plus the padding.
HEDDLE_INLINE WindowRange covering_windows(std::int64_t position, std::int64_t kernel, std::int64_t stride,
                                           std::int64_t out_size) {
  const std::int64_t begin = position < kernel ? 0 : (position - kernel) / stride + 1;
  return {begin, max64(begin, min64(out_size, position / stride + 1))};
}

// The usual pool: windows of 2x2 that meet neither padding nor an edge.
HEDDLE_INLINE bool is_2x2(const PoolShape& s) {
  return s.kernel_h == 2 && s.kernel_w == 2 && s.stride_h == 2 && s.stride_w == 2 && s.pad_h == 0 && s.pad_w == 0 &&
         s.out_h * 2 <= s.in_h && s.out_w * 2 <= s.in_w;
}

// Places of one channel of a window in x.
struct Window2x2 {
  std::int64_t corner, row, channels;
  HEDDLE_INLINE std::int64_t element(int i) const { return corner + (i / 2) * row + (i % 2) * channels; }
};

// Stores or adds a gradient to dx[at]; the ReLU in front of the pool lets through what is above 0.
template <class Args, class Lanes>
HEDDLE_INLINE void put_gradient(const Args& args, std::int64_t at, Vec gradient, const Lanes& lanes) {
  if (args.relu_mask != nullptr) gradient = select(lanes.get(args.relu_mask + at) > Vec{}, gradient, Vec{});
  lanes.put(args.dx + at, args.accumulate ? lanes.get(args.dx + at) + gradient : gradient);
}

// dx of one image for 2x2 windows: body(place in y, window, lanes) for all of them, then zeros in the row and column
// that no window covers.
template <class Args, class Body>
HEDDLE_INLINE void backward_2x2_windows(const PoolShape& s, const Args& args, std::int64_t n, const Body& body) {
  const std::int64_t row = s.in_w * s.channels;
  const std::int64_t in = n * s.in_h * row;
  for (std::int64_t oh = 0; oh < s.out_h; ++oh) {
    for (std::int64_t ow = 0; ow < s.out_w; ++ow) {
      const std::int64_t out = ((n * s.out_h + oh) * s.out_w + ow) * s.channels;
      const std::int64_t corner = in + 2 * oh * row + 2 * ow * s.channels;
      for_channels(s.channels, [&](std::int64_t c, auto lanes) {
        body(out + c, Window2x2{corner + c, row, s.channels}, lanes);
      });
    }
    if (args.accumulate) continue;
    for (std::int64_t h = 2 * oh; h < 2 * oh + 2; ++h) {
      for (std::int64_t i = 2 * s.out_w * s.channels; i < row; ++i) args.dx[in + h * row + i] = 0.0f;
    }
  }
  if (args.accumulate) return;
  for (std::int64_t i = 2 * s.out_h * row; i < s.in_h * row; ++i) args.dx[in + i] = 0.0f;
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
