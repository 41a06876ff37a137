// Pooling of a convolution's output in lanes, and the way back of its gradient. Rules of ties, NaN and order of sums
// are those of max_pool.cpp and avg_pool.cpp, so that fused and separate kernels agree bit for bit.
#include "conv_pool.h"

#include "pool_channels.h"
#include "pool_window.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

// Stores the four gradients of one vector of a pooled output; the window's elements are `right` and `down` apart.
template <class Lanes>
HEDDLE_INLINE void spread(const Lanes& lanes, Vec dy, IntVec code, float* out, std::int64_t right, std::int64_t down) {
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) {
    lanes.put(out + (i / 2) * down + (i % 2) * right, gradient_in_window(dy, code, i));
  }
}

}  // namespace

void pool_lane_window(const ConvForward& args, const float* window, std::int64_t numel, float* y, float* code) {
  for (std::int64_t i = 0; i < numel; i += kLanes) {
    const Vec in[4] = {load(window + i), load(window + numel + i), load(window + 2 * numel + i),
                       load(window + 3 * numel + i)};
    Vec value, bits;
    if (args.pool == PoolAfter::kMax) {
      max_of_window(in, args.relu, &value, &bits);
    } else {
      average_of_window(in, args.relu, &value, &bits);
    }
    store(y + i, value);
    store(code + i, bits);
  }
}

void spread_lane_rows(const ConvShape& part, const PooledRows& pooled, std::int64_t width, float* out, float* scratch) {
  const std::int64_t row_numel = part.out_w / 2 * part.out_c;
  const std::int64_t right = part.out_c * width, down = part.out_w * right;
  const float factor = pool_share(pooled.pool);
  const LaneRun run = {pooled.image_stride, pooled.images, row_numel};
  float* code = scratch + row_numel * width;
  for (std::int64_t row = 0; row < pooled.pooled_rows; ++row) {
    images_to_lanes(pooled.dy + row * row_numel, run, width, scratch);
    images_to_lanes(pooled.code + row * row_numel, run, width, code);
    for (std::int64_t column = 0; column < part.out_w / 2; ++column) {
      float* corner = out + 2 * row * down + 2 * column * right;
      for (std::int64_t i = 0; i < right; i += kLanes) {
        const std::int64_t at = column * right + i;
        spread(AllLanes{}, load(scratch + at) * factor, as_int(load(code + at)), corner + i, right, down);
      }
    }
  }
}

void spread_image(const ConvShape& part, const PooledRows& pooled, float* out) {
  const std::int64_t right = part.out_c, down = part.out_w * right;
  const float factor = pool_share(pooled.pool);
  const auto spread_channels = [&](std::int64_t at, float* corner, std::int64_t c, auto lanes) {
    spread(lanes, lanes.get(pooled.dy + at + c) * factor, lanes.get_bytes(pooled.code + at + c), corner + c, right,
           down);
  };
  for (std::int64_t row = 0; row < pooled.pooled_rows; ++row) {
    for (std::int64_t column = 0; column < part.out_w / 2; ++column) {
      const std::int64_t at = (row * (part.out_w / 2) + column) * part.out_c;
      float* corner = out + 2 * row * down + 2 * column * right;
      for (std::int64_t c = 0; c + kLanes <= part.out_c; c += kLanes) spread_channels(at, corner, c, AllLanes{});
      if (part.out_c % kLanes == 0) continue;
      if (part.out_c > kLanes) {  // Overlaps the vector before it: the same values once more.
        spread_channels(at, corner, part.out_c - kLanes, AllLanes{});
      } else {
        spread_channels(at, corner, 0, FirstLanes{part.out_c});
      }
    }
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
