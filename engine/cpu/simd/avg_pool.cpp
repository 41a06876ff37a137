// Average pooling, vectors along the channels.
#include "kernels.h"
#include "pool_channels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

struct Window {
  std::int64_t h, h_end, w, w_end;  // input rows and columns, clipped
  float inverse_count;              // 1 / divisor
};

// The divisor counts the window inside the input, or inside the padded input; a window outside both divides by 1.
Window window_at(const PoolShape& s, std::int64_t oh, std::int64_t ow) {
  const std::int64_t top = oh * s.stride_h - s.pad_h, left = ow * s.stride_w - s.pad_w;
  Window window;
  window.h = max64(0, top);
  window.w = max64(0, left);
  window.h_end = max64(window.h, min64(s.in_h, top + s.kernel_h));
  window.w_end = max64(window.w, min64(s.in_w, left + s.kernel_w));
  std::int64_t count = (window.h_end - window.h) * (window.w_end - window.w);
  if (s.count_include_pad) {
    count = (min64(s.in_h + s.pad_h, top + s.kernel_h) - top) * (min64(s.in_w + s.pad_w, left + s.kernel_w) - left);
  }
  window.inverse_count = 1.0f / static_cast<float>(max64(1, count));
  return window;
}

void backward_2x2(const PoolShape& s, const AvgPoolBackward& args, std::int64_t n) {
  backward_2x2_windows(s, args, n, [&](std::int64_t out, const Window2x2& window, auto lanes) {
    const Vec share = lanes.get(args.dy + out) * 0.25f;
    HEDDLE_UNROLL
    for (int i = 0; i < 4; ++i) put_gradient(args, window.element(i), share, lanes);
  });
}

}  // namespace

void avg_pool_forward(const PoolShape& s, const AvgPoolForward& args, Range images) {
  const bool fast = is_2x2(s);
  const std::int64_t row = s.in_w * s.channels;
  for (std::int64_t n = images.begin; n < images.end; ++n) {
    const float* x = args.x + n * s.in_h * row;
    for (std::int64_t oh = 0; oh < s.out_h; ++oh) {
      for (std::int64_t ow = 0; ow < s.out_w; ++ow) {
        float* y = args.y + ((n * s.out_h + oh) * s.out_w + ow) * s.channels;
        if (fast) {
          const float* corner = x + 2 * oh * row + 2 * ow * s.channels;
          for_channels(s.channels, [&](std::int64_t c, auto lanes) {
            const float* p = corner + c;
            const Vec top = lanes.get(p) + lanes.get(p + s.channels);
            lanes.put(y + c, (top + lanes.get(p + row) + lanes.get(p + row + s.channels)) * 0.25f);
          });
          continue;
        }
        const Window window = window_at(s, oh, ow);
        for_channels(s.channels, [&](std::int64_t c, auto lanes) {
          Vec sum = {};
          for (std::int64_t h = window.h; h < window.h_end; ++h) {
            for (std::int64_t w = window.w; w < window.w_end; ++w) sum += lanes.get(x + h * row + w * s.channels + c);
          }
          lanes.put(y + c, sum * window.inverse_count);
        });
      }
    }
  }
}

// dx[ih][iw] = sum of dy / divisor over the windows that cover (ih, iw).
void avg_pool_backward(const PoolShape& s, const AvgPoolBackward& args, Range images) {
  const bool fast = is_2x2(s);
  for (std::int64_t n = images.begin; n < images.end; ++n) {
    if (fast) {
      backward_2x2(s, args, n);
      continue;
    }
    for (std::int64_t ih = 0; ih < s.in_h; ++ih) {
      const WindowRange rows = covering_windows(ih + s.pad_h, s.kernel_h, s.stride_h, s.out_h);
      for (std::int64_t iw = 0; iw < s.in_w; ++iw) {
        const WindowRange columns = covering_windows(iw + s.pad_w, s.kernel_w, s.stride_w, s.out_w);
        const std::int64_t in = ((n * s.in_h + ih) * s.in_w + iw) * s.channels;
        for_channels(s.channels, [&](std::int64_t c, auto lanes) {
          Vec sum = {};
          for (std::int64_t oh = rows.begin; oh < rows.end; ++oh) {
            for (std::int64_t ow = columns.begin; ow < columns.end; ++ow) {
              const float share = window_at(s, oh, ow).inverse_count;
              sum += lanes.get(args.dy + ((n * s.out_h + oh) * s.out_w + ow) * s.channels + c) * share;
            }
          }
          put_gradient(args, in + c, sum, lanes);
        });
      }
    }
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
