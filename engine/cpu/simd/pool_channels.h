// Loops over the channels of a pixel: full vectors, then one short one.
#pragma once

#include "lanes.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

struct AllLanes {
  HEDDLE_INLINE Vec get(const float* p) const { return load(p); }
  HEDDLE_INLINE void put(float* p, Vec v) const { store(p, v); }
  HEDDLE_INLINE IntVec get_bytes(const std::uint8_t* p) const {
    return __builtin_convertvector(static_cast<ByteVec>(*reinterpret_cast<const UnalignedByteVec*>(p)), IntVec);
  }
  HEDDLE_INLINE void put_bytes(std::uint8_t* p, IntVec v) const {
    *reinterpret_cast<UnalignedByteVec*>(p) = __builtin_convertvector(v, ByteVec);
  }
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

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
