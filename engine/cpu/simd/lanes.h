// "Images in lanes": the layout in which the convolutions of this folder compute. Element e of up to `width` images
// lies in `width` neighbouring floats, so that every vector is full whatever the channel counts are.
#pragma once

#include "vec.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

#if HEDDLE_SIMD_LANES == 16
#define HEDDLE_LANES4(a, b, c, d) \
  a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8, d + 8, a + 12, b + 12, c + 12, d + 12
#define HEDDLE_PAIRS(a, b, c, d)                                                                                 \
  (a) * 4, (a)*4 + 1, (a)*4 + 2, (a)*4 + 3, (b)*4, (b)*4 + 1, (b)*4 + 2, (b)*4 + 3, (c)*4, (c)*4 + 1, (c)*4 + 2, \
      (c)*4 + 3, (d)*4, (d)*4 + 1, (d)*4 + 2, (d)*4 + 3
#elif HEDDLE_SIMD_LANES == 8
#define HEDDLE_LANES4(a, b, c, d) a, b, c, d, a + 4, b + 4, c + 4, d + 4
#else
#define HEDDLE_LANES4(a, b, c, d) a, b, c, d
#endif

// Transposes kLanes vectors in place: lane j of vector i becomes lane i of vector j.
HEDDLE_INLINE void transpose(Vec* r) {
  constexpr int n = kLanes;
  Vec s[kLanes];
  HEDDLE_UNROLL
  for (int i = 0; i < n; i += 4) {
    const Vec t0 = __builtin_shufflevector(r[i], r[i + 1], HEDDLE_LANES4(0, n, 1, n + 1));
    const Vec t1 = __builtin_shufflevector(r[i], r[i + 1], HEDDLE_LANES4(2, n + 2, 3, n + 3));
    const Vec t2 = __builtin_shufflevector(r[i + 2], r[i + 3], HEDDLE_LANES4(0, n, 1, n + 1));
    const Vec t3 = __builtin_shufflevector(r[i + 2], r[i + 3], HEDDLE_LANES4(2, n + 2, 3, n + 3));
    s[i] = __builtin_shufflevector(t0, t2, HEDDLE_LANES4(0, 1, n, n + 1));
    s[i + 1] = __builtin_shufflevector(t0, t2, HEDDLE_LANES4(2, 3, n + 2, n + 3));
    s[i + 2] = __builtin_shufflevector(t1, t3, HEDDLE_LANES4(0, 1, n, n + 1));
    s[i + 3] = __builtin_shufflevector(t1, t3, HEDDLE_LANES4(2, 3, n + 2, n + 3));
  }
#if HEDDLE_SIMD_LANES == 16
  HEDDLE_UNROLL
  for (int j = 0; j < 4; ++j) {
    const Vec t0 = __builtin_shufflevector(s[j], s[j + 4], HEDDLE_PAIRS(0, 1, 4, 5));
    const Vec t1 = __builtin_shufflevector(s[j], s[j + 4], HEDDLE_PAIRS(2, 3, 6, 7));
    const Vec t2 = __builtin_shufflevector(s[j + 8], s[j + 12], HEDDLE_PAIRS(0, 1, 4, 5));
    const Vec t3 = __builtin_shufflevector(s[j + 8], s[j + 12], HEDDLE_PAIRS(2, 3, 6, 7));
    r[j] = __builtin_shufflevector(t0, t2, HEDDLE_PAIRS(0, 2, 4, 6));
    r[j + 4] = __builtin_shufflevector(t0, t2, HEDDLE_PAIRS(1, 3, 5, 7));
    r[j + 8] = __builtin_shufflevector(t1, t3, HEDDLE_PAIRS(0, 2, 4, 6));
    r[j + 12] = __builtin_shufflevector(t1, t3, HEDDLE_PAIRS(1, 3, 5, 7));
  }
#elif HEDDLE_SIMD_LANES == 8
  HEDDLE_UNROLL
  for (int j = 0; j < 4; ++j) {
    r[j] = __builtin_shufflevector(s[j], s[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[j + 4] = __builtin_shufflevector(s[j], s[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
#else
  HEDDLE_UNROLL
  for (int j = 0; j < 4; ++j) r[j] = s[j];
#endif
}

// A run of `count` elements in each of `images` images (1..width), image i starting at i * image_stride.
struct LaneRun {
  std::int64_t image_stride;
  std::int64_t images;
  std::int64_t count;
};

typedef std::uint8_t ByteVec __attribute__((vector_size(HEDDLE_SIMD_LANES)));
typedef std::uint8_t UnalignedByteVec __attribute__((vector_size(HEDDLE_SIMD_LANES), aligned(1), may_alias));

// A vector of floats, or of bytes widened to integers whose bits stand in for floats.
HEDDLE_INLINE IntVec load_bytes(const std::uint8_t* p) {
#if HEDDLE_SIMD_LANES == 8
  return reinterpret_cast<IntVec>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  return __builtin_convertvector(static_cast<ByteVec>(*reinterpret_cast<const UnalignedByteVec*>(p)), IntVec);
#endif
}
// Integers in [0, 255].
HEDDLE_INLINE void store_bytes(std::uint8_t* p, IntVec v) {
#if HEDDLE_SIMD_LANES == 8  // Compilers make eight single extractions of a conversion.
  const __m256i all = reinterpret_cast<__m256i>(v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
#else
  *reinterpret_cast<UnalignedByteVec*>(p) = __builtin_convertvector(v, ByteVec);
#endif
}
HEDDLE_INLINE Vec load_wide(const float* p) { return load(p); }
HEDDLE_INLINE Vec load_wide(const std::uint8_t* p) { return as_float(load_bytes(p)); }
HEDDLE_INLINE float wide(float value) { return value; }
HEDDLE_INLINE float wide(std::uint8_t value) { return __builtin_bit_cast(float, static_cast<std::int32_t>(value)); }

// dst[e * width + i] = src[i * image_stride + e]; lanes without an image become 0. width is a multiple of kLanes.
// T: float, or std::uint8_t for integers in dst.
template <class T>
HEDDLE_INLINE void images_to_lanes(const T* src, const LaneRun& run, std::int64_t width, float* dst) {
  for (std::int64_t first = 0; first < width; first += kLanes) {
    const std::int64_t images = max64(0, min64(kLanes, run.images - first));
    const T* s = src + first * run.image_stride;
    float* d = dst + first;
    if (images == kLanes && run.count >= kLanes) {
      for (std::int64_t e = 0; e < run.count; e += kLanes) {
        e = min64(e, run.count - kLanes);  // The last block overlaps the one before it: the same values once more.
        Vec r[kLanes];
        HEDDLE_UNROLL
        for (int i = 0; i < kLanes; ++i) r[i] = load_wide(s + i * run.image_stride + e);
        transpose(r);
        HEDDLE_UNROLL
        for (int i = 0; i < kLanes; ++i) store(d + (e + i) * width, r[i]);
      }
      continue;
    }
    for (std::int64_t e = 0; e < run.count; ++e) {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        d[e * width + i] = i < images ? wide(s[i * run.image_stride + e]) : 0.0f;
      }
    }
  }
}

// What happens to values on their way out of the lanes. Both arrays are laid out like the destination.
struct LaneOutput {
  float* dst;
  const float* mask = nullptr;  // values become 0 where it is not above 0
  bool accumulate = false;      // add to the old values
};

// out.dst[i * image_stride + e] = src[e * width + i]
HEDDLE_INLINE void lanes_to_images(const float* src, const LaneRun& run, std::int64_t width, const LaneOutput& out) {
  for (std::int64_t first = 0; first < run.images; first += kLanes) {
    const std::int64_t images = min64(kLanes, run.images - first);
    const float* s = src + first;
    float* d = out.dst + first * run.image_stride;
    const float* m = out.mask != nullptr ? out.mask + first * run.image_stride : nullptr;
    std::int64_t done = 0;
    if (images == kLanes && run.count >= kLanes) {
      for (std::int64_t e = 0; e < run.count; e += kLanes) {
        // The last block overlaps the one before it where the same values may be stored twice.
        if (e + kLanes > run.count && out.accumulate) break;
        e = min64(e, run.count - kLanes);
        Vec r[kLanes];
        HEDDLE_UNROLL
        for (int i = 0; i < kLanes; ++i) r[i] = load(s + (e + i) * width);
        transpose(r);
        if (m != nullptr) {
          HEDDLE_UNROLL
          for (int i = 0; i < kLanes; ++i) {
            r[i] = select(load(m + i * run.image_stride + e) > Vec{}, r[i], Vec{});
          }
        }
        HEDDLE_UNROLL
        for (int i = 0; i < kLanes; ++i) {
          float* to = d + i * run.image_stride + e;
          store(to, out.accumulate ? load(to) + r[i] : r[i]);
        }
        done = e + kLanes;
      }
    }
    for (std::int64_t i = 0; i < images; ++i) {
      for (std::int64_t e = done; e < run.count; ++e) {
        const std::int64_t at = i * run.image_stride + e;
        const float value = m == nullptr || m[at] > 0.0f ? s[e * width + i] : 0.0f;
        d[at] = out.accumulate ? d[at] + value : value;
      }
    }
  }
}

// dst[i * image_stride + e] = src[e * width + i], integers in [0, 255] to bytes.
HEDDLE_INLINE void lanes_to_bytes(const float* src, const LaneRun& run, std::int64_t width, std::uint8_t* dst) {
  for (std::int64_t first = 0; first < run.images; first += kLanes) {
    const std::int64_t images = min64(kLanes, run.images - first);
    const float* s = src + first;
    std::uint8_t* d = dst + first * run.image_stride;
    if (images == kLanes && run.count >= kLanes) {
      for (std::int64_t e = 0; e < run.count; e += kLanes) {
        e = min64(e, run.count - kLanes);
        Vec r[kLanes];
        HEDDLE_UNROLL
        for (int i = 0; i < kLanes; ++i) r[i] = load(s + (e + i) * width);
        transpose(r);
        HEDDLE_UNROLL
        for (int i = 0; i < kLanes; ++i) {
          store_bytes(d + i * run.image_stride + e, as_int(r[i]));
        }
      }
      continue;
    }
    for (std::int64_t i = 0; i < images; ++i) {
      for (std::int64_t e = 0; e < run.count; ++e) {
        const auto bits = __builtin_bit_cast(std::int32_t, s[e * width + i]);
        d[i * run.image_stride + e] = static_cast<std::uint8_t>(bits);
      }
    }
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
