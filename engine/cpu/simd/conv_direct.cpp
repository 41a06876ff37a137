// See conv_direct.h. Per window of 2x2 outputs and vector of channels: 16 broadcast inputs feed 36 multiply-adds.
#include "conv_direct.h"

#include "conv_weight.h"
#include "pool_window.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

// body(element, tap, x) for all multiply-adds of neighbouring windows, taps of an element in ascending order. Element
// 4 * w + i is element i of window w.
template <int kWindows, class Body>
HEDDLE_INLINE void for_window_taps(const float* x, std::int64_t in_w, const Body& body) {
  // Hides where x comes from: a compiler that keeps the columns which the next window has in common runs out of
  // registers and spills the sums.
  __asm__("" : "+r"(x));
  HEDDLE_UNROLL
  for (int row = 0; row < 4; ++row) {
    HEDDLE_UNROLL
    for (int column = 0; column < 2 * kWindows + 2; ++column) {
      const Vec value = broadcast(x[row * in_w + column]);
      HEDDLE_UNROLL
      for (int e = 0; e < 4 * kWindows; ++e) {
        const int kh = row - e % 4 / 2, kw = column - e % 2 - e / 4 * 2;
        if (kh >= 0 && kh < 3 && kw >= 0 && kw < 3) body(e, kh * 3 + kw, value);
      }
    }
  }
}

// weights[vector][tap, then bias][lane] from the blocks of conv_pack_forward.
void weights_to_lanes(const ConvShape& s, const ConvForward& args, float* weights) {
  const ChannelBlocks blocks = channel_blocks(s.out_c, kMaxChannelBlock);
  for (std::int64_t v = 0; v < direct_vectors(s); ++v, weights += (kDirectTaps + 1) * kLanes) {
    const std::int64_t begin = direct_first_channel(s, v);
    for (std::int64_t block = 0, first = 0; block < blocks.count; ++block) {
      const std::int64_t size = block_size(blocks, block);
      for (std::int64_t c = max64(first, begin); c < min64(first + size, begin + kLanes); ++c) {
        const float* w = args.packed_w + first * kDirectTaps + c - first;
        for (std::int64_t tap = 0; tap < kDirectTaps; ++tap) weights[tap * kLanes + c - begin] = w[tap * size];
        weights[kDirectTaps * kLanes + c - begin] = args.bias != nullptr ? args.bias[c] : 0.0f;
      }
      first += size;
    }
  }
}

// Neighbouring windows of one vector of channels; x, y and code point at the first element.
template <PoolAfter kPool, int kWindows>
HEDDLE_INLINE void forward_windows(const ConvShape& s, bool with_relu, const Vec* w, Vec bias, const float* x, float* y,
                                   std::uint8_t* code) {
  Vec sum[4 * kWindows];
  HEDDLE_UNROLL
  for (int e = 0; e < 4 * kWindows; ++e) sum[e] = bias;
  for_window_taps<kWindows>(x, s.in_w, [&](int e, int tap, Vec value) { sum[e] += value * w[tap]; });
  HEDDLE_UNROLL
  for (int window = 0; window < kWindows; ++window) {
    Vec* in = sum + 4 * window;
    Vec value, bits;
    if (kPool == PoolAfter::kMax) {
      max_of_window(in, with_relu, &value, &bits);
    } else {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) in[i] = with_relu ? relu(in[i]) : in[i];
      average_of_window(in, with_relu, &value, &bits);
    }
    store(y + window * s.out_c, value);
    if (code != nullptr) store_bytes(code + window * s.out_c, as_int(bits));
  }
}

// One vector of channels of one image. Two windows at a time: the four chains of multiply-adds of one would leave the
// units half idle.
template <PoolAfter kPool>
void forward_image(const ConvShape& s, const ConvForward& args, const float* weights, const float* x, float* y,
                   std::uint8_t* code) {
  Vec w[kDirectTaps];
  HEDDLE_UNROLL
  for (int tap = 0; tap < kDirectTaps; ++tap) w[tap] = load(weights + tap * kLanes);
  const Vec bias = load(weights + kDirectTaps * kLanes);
  const std::int64_t columns = s.out_w / 2;
  for (std::int64_t row = 0; row < s.out_h / 2; ++row) {
    for (std::int64_t column = 0; column < columns;) {
      const float* corner = x + 2 * row * s.in_w + 2 * column;
      const std::int64_t at = (row * columns + column) * s.out_c;
      std::uint8_t* bits = code != nullptr ? code + at : nullptr;
      if (column + 2 <= columns) {
        forward_windows<kPool, 2>(s, args.relu, w, bias, corner, y + at, bits);
        column += 2;
      } else {
        forward_windows<kPool, 1>(s, args.relu, w, bias, corner, y + at, bits);
        column += 1;
      }
    }
  }
}

// One vector of channels of one image: adds to sums[tap, then bias][lane]. x, dy and code as in forward_image.
void gradient_image(const ConvShape& s, const ConvBackwardWeight& args, const float* x, const float* dy,
                    const std::uint8_t* code, float* sums) {
  const float factor = pool_share(args.pool);
  Vec sum[kDirectTaps] = {};
  Vec bias = {};
  for (std::int64_t oh = 0; oh + 2 <= s.out_h; oh += 2) {
    for (std::int64_t ow = 0; ow + 2 <= s.out_w; ow += 2, dy += s.out_c, code += s.out_c) {
      const Vec pooled = load(dy) * factor;
      const IntVec bits = load_bytes(code);
      Vec gradient[4];
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) gradient[i] = gradient_in_window(pooled, bits, i);
      bias += (gradient[0] + gradient[1]) + (gradient[2] + gradient[3]);
      for_window_taps<1>(x + oh * s.in_w + ow, s.in_w,
                         [&](int i, int tap, Vec value) { sum[tap] += value * gradient[i]; });
    }
  }
  HEDDLE_UNROLL
  for (int tap = 0; tap < kDirectTaps; ++tap) store(sums + tap * kLanes, load(sums + tap * kLanes) + sum[tap]);
  store(sums + kDirectTaps * kLanes, load(sums + kDirectTaps * kLanes) + bias);
}

HEDDLE_INLINE std::int64_t pooled_numel(const ConvShape& s) { return (s.out_h / 2) * (s.out_w / 2) * s.out_c; }

}  // namespace

void direct_forward(const ConvShape& s, const ConvForward& args, Range images) {
  const auto image = args.pool == PoolAfter::kMax ? forward_image<PoolAfter::kMax> : forward_image<PoolAfter::kAverage>;
  weights_to_lanes(s, args, args.scratch);
  for (std::int64_t n = images.begin; n < images.end; ++n) {
    for (std::int64_t v = 0; v < direct_vectors(s); ++v) {
      const std::int64_t at = n * pooled_numel(s) + direct_first_channel(s, v);
      image(s, args, args.scratch + v * (kDirectTaps + 1) * kLanes, args.x + n * input_numel(s), args.y + at,
            args.pool_code != nullptr ? args.pool_code + at : nullptr);
    }
  }
}

void direct_gradient(const ConvShape& s, const ConvBackwardWeight& args, Range images) {
  constexpr std::int64_t kSums = (kDirectTaps + 1) * kLanes;
  float* sums = args.scratch;
  for (std::int64_t i = 0; i < direct_scratch_floats(s); ++i) sums[i] = 0.0f;
  for (std::int64_t n = images.begin; n < images.end; ++n) {
    for (std::int64_t v = 0; v < direct_vectors(s); ++v) {
      const std::int64_t at = n * pooled_numel(s) + direct_first_channel(s, v);
      gradient_image(s, args, args.x + n * input_numel(s), args.dy + at, args.pool_code + at, sums + v * kSums);
    }
  }
  const std::int64_t row_floats = partial_row_floats(s);
  for (std::int64_t v = 0; v < direct_vectors(s); ++v, sums += kSums) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const std::int64_t oc = direct_first_channel(s, v) + lane;
      for (std::int64_t tap = 0; tap < kDirectTaps; ++tap) {
        args.partial[(oc * 3 + tap / 3) * row_floats + tap % 3] = sums[tap * kLanes + lane];
      }
      args.partial[s.out_c * 3 * row_floats + oc] = sums[kDirectTaps * kLanes + lane];
    }
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
