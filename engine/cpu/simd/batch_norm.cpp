// Batch norm of a block of rows. Images are walked as flat vectors, whatever the number of channels is: element i has
// the channel values [i % period], which the caller has repeated.
#include "column_sums.h"
#include "kernels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

std::int64_t batch_norm_period(std::int64_t channels) { return column_sums_floats(channels); }
std::size_t batch_norm_scratch_floats(std::int64_t channels) {
  return 2 * static_cast<std::size_t>(batch_norm_period(channels));
}

namespace {

struct True {
  static constexpr bool value = true;
};
struct False {
  static constexpr bool value = false;
};

constexpr int kGroup = 4;  // vectors of the period whose sums are in registers at a time

// One bit an element, kLanes for vector i.
HEDDLE_INLINE void store_bits(std::uint8_t* bits, std::int64_t i, IntVec mask) {
#if HEDDLE_SIMD_LANES == 16
  const __mmask16 m = _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask));
  __builtin_memcpy(bits + 2 * i, &m, 2);
#elif HEDDLE_SIMD_LANES == 8
  bits[i] = static_cast<std::uint8_t>(_mm256_movemask_ps(as_float(mask)));
#else
  unsigned m = 0;
  for (int lane = 0; lane < kLanes; ++lane) m |= mask[lane] != 0 ? 1u << lane : 0u;
  bits[i / 2] = static_cast<std::uint8_t>(i % 2 == 0 ? m : bits[i / 2] | m << 4);
#endif
}

// v where the vector's bits are set, else 0.
HEDDLE_INLINE Vec keep_where(const std::uint8_t* bits, std::int64_t i, Vec v) {
#if HEDDLE_SIMD_LANES == 16
  __mmask16 m;
  __builtin_memcpy(&m, bits + 2 * i, 2);
  return _mm512_maskz_mov_ps(m, v);
#elif HEDDLE_SIMD_LANES == 8
  const IntVec lane_bits = {1, 2, 4, 8, 16, 32, 64, 128};
  return select(((std::int32_t{bits[i]} - IntVec{}) & lane_bits) != 0, v, Vec{});
#else
  const IntVec lane_bits = {1, 2, 4, 8};
  const std::int32_t m = i % 2 == 0 ? bits[i / 2] : bits[i / 2] >> 4;
  return select(((m - IntVec{}) & lane_bits) != 0, v, Vec{});
#endif
}

// The vector that begins at element e of n, 0 behind the end.
HEDDLE_INLINE Vec load_at(const float* p, std::int64_t e, std::int64_t n) {
  return n - e >= kLanes ? load(p + e) : load_first(p + e, n - e);
}
HEDDLE_INLINE void store_at(float* p, Vec v, std::int64_t e, std::int64_t n) {
  if (n - e >= kLanes) {
    store(p + e, v);
  } else {
    store_first(p + e, v, n - e);
  }
}
// v, but 0 behind element n.
HEDDLE_INLINE Vec cut_at(Vec v, std::int64_t e, std::int64_t n) {
  if (n - e >= kLanes) return v;
  float lanes[kLanes];
  store(lanes, v);
  for (std::int64_t i = n - e; i < kLanes; ++i) lanes[i] = 0.0f;
  return load(lanes);
}

// Calls body(whole, element, place) for the vectors of n elements; whole: True, or False where one may be cut.
template <class Body>
HEDDLE_INLINE void for_each_vector(std::int64_t n, std::int64_t period, const Body& body) {
  std::int64_t e = 0;
  for (; e + period <= n; e += period) {
    for (std::int64_t place = 0; place < period; place += kLanes) body(True{}, e + place, place);
  }
  for (std::int64_t place = 0; e + place < n; place += kLanes) body(False{}, e + place, place);
}
HEDDLE_INLINE Vec load_part(True, const float* p, std::int64_t e, std::int64_t) { return load(p + e); }
HEDDLE_INLINE Vec load_part(False, const float* p, std::int64_t e, std::int64_t n) { return load_at(p, e, n); }
HEDDLE_INLINE void store_part(True, float* p, Vec v, std::int64_t e, std::int64_t) { store(p + e, v); }
HEDDLE_INLINE void store_part(False, float* p, Vec v, std::int64_t e, std::int64_t n) { store_at(p, v, e, n); }

// Sums of Group vectors of the period, from `place` on, over all that repeat them.
template <int Group, int Sums, class Term>
HEDDLE_INLINE void sum_group(std::int64_t n, std::int64_t period, std::int64_t place, float* const (&sums)[Sums],
                             const Term& term) {
  const std::int64_t whole = n / period * period;
  Vec total[Sums][Group] = {};
  for (std::int64_t e = place; e < whole; e += period) {
    HEDDLE_UNROLL
    for (int g = 0; g < Group; ++g) {
      Vec v[Sums];
      term(True{}, e + g * kLanes, place + g * kLanes, v);
      HEDDLE_UNROLL
      for (int s = 0; s < Sums; ++s) total[s][g] += v[s];
    }
  }
  for (int g = 0; g < Group; ++g) {
    const std::int64_t e = whole + place + g * kLanes;
    if (e < n) {
      Vec v[Sums];
      term(False{}, e, place + g * kLanes, v);
      for (int s = 0; s < Sums; ++s) total[s][g] += cut_at(v[s], e, n);
    }
    for (int s = 0; s < Sums; ++s) store(sums[s] + place + g * kLanes, total[s][g]);
  }
}

// sums[i] (one a place of the period) = sum over the elements of that place; term(whole, e, place, v) makes their
// vectors at element e, not cut at the end; whole: see for_each_vector.
template <int Sums, class Term>
HEDDLE_INLINE void sum_period(std::int64_t n, std::int64_t period, float* const (&sums)[Sums], const Term& term) {
  std::int64_t place = 0;
  for (; place + kGroup * kLanes <= period; place += kGroup * kLanes) {
    sum_group<kGroup, Sums>(n, period, place, sums, term);
  }
  for (; place < period; place += kLanes) sum_group<1, Sums>(n, period, place, sums, term);
}

// Makes a period of the first `channels` values.
HEDDLE_INLINE void repeat(float* values, std::int64_t channels, std::int64_t period) {
  for (std::int64_t i = channels; i < period; ++i) values[i] = values[i - channels];
}

// The sum of a channel's places.
HEDDLE_INLINE double fold(const float* sums, std::int64_t c, std::int64_t channels, std::int64_t period) {
  double total = 0.0;
  for (std::int64_t i = c; i < period; i += channels) total += static_cast<double>(sums[i]);
  return total;
}

}  // namespace

// Differences are from the first row, which is about as far from the mean as any, and then from the mean: they are
// small where the mean is large.
void batch_norm_statistics(const BatchNormBlock& block, const float* x, double* mean, double* m2, float* scratch) {
  const std::int64_t channels = block.channels, n = block.rows * channels, period = batch_norm_period(channels);
  float* const start = scratch;
  float* const sums = scratch + period;
  for (std::int64_t c = 0; c < channels; ++c) start[c] = x[c];
  repeat(start, channels, period);
  sum_period<1>(n, period, {sums}, [&](auto whole, std::int64_t e, std::int64_t place, Vec* v) {
    v[0] = load_part(whole, x, e, n) - load(start + place);
  });
  const auto rows = static_cast<double>(block.rows);
  for (std::int64_t c = 0; c < channels; ++c) mean[c] = fold(sums, c, channels, period) / rows;
  // sums: now the mean's distance from the first row.
  for (std::int64_t c = 0; c < channels; ++c) sums[c] = static_cast<float>(mean[c]);
  repeat(sums, channels, period);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double lost = mean[c] - static_cast<double>(sums[c]);
    mean[c] += static_cast<double>(start[c]);
    m2[c] = -rows * lost * lost;
  }
  // The places of `sums` are read before they are written.
  sum_period<1>(n, period, {sums}, [&](auto whole, std::int64_t e, std::int64_t place, Vec* v) {
    const Vec difference = load_part(whole, x, e, n) - load(start + place) - load(sums + place);
    v[0] = difference * difference;
  });
  for (std::int64_t c = 0; c < channels; ++c) {
    m2[c] += fold(sums, c, channels, period);
    if (m2[c] < 0.0) m2[c] = 0.0;
  }
}

namespace {

template <bool Add, bool Relu, bool Mask>
void normalise(const BatchNormBlock& block, const BatchNormNormalise& args) {
  const std::int64_t n = block.rows * block.channels;
  for_each_vector(n, batch_norm_period(block.channels), [&](auto whole, std::int64_t e, std::int64_t place) {
    Vec v = load_part(whole, args.x, e, n) - load(args.center + place);
    v = v * load(args.factor + place) + load(args.offset + place);
    if (Add) v += load_part(whole, args.addend, e, n);
    if (Mask) store_bits(args.mask, e / kLanes, v > Vec{});
    if (Relu) v = relu(v);
    store_part(whole, args.y, v, e, n);
  });
}

template <bool Add>
void normalise(const BatchNormBlock& block, const BatchNormNormalise& args) {
  if (args.mask != nullptr) return normalise<Add, true, true>(block, args);
  args.relu ? normalise<Add, true, false>(block, args) : normalise<Add, false, false>(block, args);
}

}  // namespace

void batch_norm_normalise(const BatchNormBlock& block, const BatchNormNormalise& args) {
  args.addend != nullptr ? normalise<true>(block, args) : normalise<false>(block, args);
}

void batch_norm_sums(const BatchNormBlock& block, const BatchNormSums& args) {
  const std::int64_t channels = block.channels, n = block.rows * channels, period = batch_norm_period(channels);
  float* const dz = args.scratch;
  float* const dz_x = args.scratch + period;
  const auto run = [&](auto masked) {
    sum_period<2>(n, period, {dz, dz_x}, [&](auto whole, std::int64_t e, std::int64_t place, Vec* v) {
      v[0] = load_part(whole, args.dy, e, n);
      if constexpr (decltype(masked)::value) v[0] = keep_where(args.mask, e / kLanes, v[0]);
      v[1] = v[0] * (load_part(whole, args.x, e, n) - load(args.mean + place));
    });
  };
  args.mask != nullptr ? run(True{}) : run(False{});
  for (std::int64_t c = 0; c < channels; ++c) {
    args.sum_dz[c] = fold(dz, c, channels, period);
    args.sum_dz_x[c] = fold(dz_x, c, channels, period);
  }
}

namespace {

template <bool Mask, bool Daddend, bool Dx>
void data(const BatchNormBlock& block, const BatchNormData& args) {
  const std::int64_t n = block.rows * block.channels;
  for_each_vector(n, batch_norm_period(block.channels), [&](auto whole, std::int64_t e, std::int64_t place) {
    Vec dz = load_part(whole, args.dy, e, n);
    if (Mask) dz = keep_where(args.mask, e / kLanes, dz);
    if (Daddend) {
      store_part(whole, args.daddend, args.add_daddend ? load_part(whole, args.daddend, e, n) + dz : dz, e, n);
    }
    if (!Dx) return;
    Vec dx = load_part(whole, args.x, e, n) - load(args.mean + place);
    dx = (dz - load(args.dz_mean + place) - dx * load(args.slope + place)) * load(args.factor + place);
    if (args.x_relu_mask != nullptr) dx = select(load_part(whole, args.x_relu_mask, e, n) > Vec{}, dx, Vec{});
    store_part(whole, args.dx, args.add_dx ? load_part(whole, args.dx, e, n) + dx : dx, e, n);
  });
}

template <bool Mask>
void data(const BatchNormBlock& block, const BatchNormData& args) {
  if (args.dx == nullptr) return data<Mask, true, false>(block, args);
  args.daddend != nullptr ? data<Mask, true, true>(block, args) : data<Mask, false, true>(block, args);
}

}  // namespace

void batch_norm_data(const BatchNormBlock& block, const BatchNormData& args) {
  args.mask != nullptr ? data<true>(block, args) : data<false>(block, args);
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
