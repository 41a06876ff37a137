// Max pooling with an optional fused ReLU, vectors along the channels.
#include "kernels.h"
#include "pool_channels.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

struct Window {
  std::int64_t h, h_end, w, w_end;  // input rows and columns, clipped
  std::int64_t first_index;         // kernel index of (h, w)
};

Window window_at(const PoolShape& s, std::int64_t oh, std::int64_t ow) {
  const std::int64_t top = oh * s.stride_h - s.pad_h, left = ow * s.stride_w - s.pad_w;
  Window window;
  window.h = max64(0, top);
  window.w = max64(0, left);
  window.h_end = min64(s.in_h, top + s.kernel_h);
  window.w_end = min64(s.in_w, left + s.kernel_w);
  window.first_index = (window.h - top) * s.kernel_w + window.w - left;
  return window;
}

// NaN replaces every number and is replaced by none.
HEDDLE_INLINE IntVec wins(Vec value, Vec best) { return (value > best) | (value != value); }

HEDDLE_INLINE IntVec int_broadcast(std::int64_t value) { return static_cast<std::int32_t>(value) - IntVec{}; }

void forward_window(const PoolShape& s, const MaxPoolForward& args, const float* x, const Window& window,
                    std::int64_t out) {
  const bool empty = window.h >= window.h_end || window.w >= window.w_end;
  for_channels(s.channels, [&](std::int64_t c, auto lanes) {
    Vec best = args.relu ? Vec{} : broadcast(-__builtin_inff());
    IntVec index = int_broadcast(args.relu || empty ? kNoWinner : window.first_index);
    std::int64_t row_index = window.first_index;
    for (std::int64_t h = window.h; h < window.h_end; ++h, row_index += s.kernel_w) {
      for (std::int64_t w = window.w; w < window.w_end; ++w) {
        const Vec value = lanes.get(x + (h * s.in_w + w) * s.channels + c);
        const IntVec better = wins(value, best);
        best = select(better, value, best);
        index = better ? int_broadcast(row_index + w - window.w) : index;
      }
    }
    lanes.put(args.y + out + c, best);
    if (args.argmax != nullptr) lanes.put_bytes(args.argmax + out + c, index);
  });
}

// A row of 2x2 windows that lie inside the input.
template <class Lanes>
HEDDLE_INLINE void forward_2x2(const Lanes& lanes, const float* x, std::int64_t row, std::int64_t channels, bool relu,
                               float* y, std::uint8_t* argmax) {
  const Vec a = lanes.get(x), b = lanes.get(x + channels);
  const Vec c = lanes.get(x + row), d = lanes.get(x + row + channels);
  Vec best = relu ? Vec{} : a;
  IntVec index = int_broadcast(relu ? kNoWinner : 0);
  IntVec better = wins(a, best);
  best = select(better, a, best);
  index = better ? IntVec{} : index;
  better = wins(b, best);
  best = select(better, b, best);
  index = better ? int_broadcast(1) : index;
  better = wins(c, best);
  best = select(better, c, best);
  index = better ? int_broadcast(2) : index;
  better = wins(d, best);
  lanes.put(y, select(better, d, best));
  if (argmax != nullptr) lanes.put_bytes(argmax, better ? int_broadcast(3) : index);
}

void backward_2x2(const PoolShape& s, const MaxPoolBackward& args, std::int64_t n) {
  backward_2x2_windows(s, args, n, [&](std::int64_t out, const Window2x2& window, auto lanes) {
    const Vec dy = lanes.get(args.dy + out);
    const IntVec winner = lanes.get_bytes(args.argmax + out);
    HEDDLE_UNROLL
    for (int i = 0; i < 4; ++i) {
      put_gradient(args, window.element(i), select(winner == int_broadcast(i), dy, Vec{}), lanes);
    }
  });
}

}  // namespace

void max_pool_forward(const PoolShape& s, const MaxPoolForward& args, Range images) {
  const bool fast = is_2x2(s);
  for (std::int64_t n = images.begin; n < images.end; ++n) {
    const float* x = args.x + n * s.in_h * s.in_w * s.channels;
    for (std::int64_t oh = 0; oh < s.out_h; ++oh) {
      for (std::int64_t ow = 0; ow < s.out_w; ++ow) {
        const std::int64_t out = ((n * s.out_h + oh) * s.out_w + ow) * s.channels;
        if (!fast) {
          forward_window(s, args, x, window_at(s, oh, ow), out);
          continue;
        }
        const float* corner = x + (2 * oh * s.in_w + 2 * ow) * s.channels;
        for_channels(s.channels, [&](std::int64_t c, auto lanes) {
          forward_2x2(lanes, corner + c, s.in_w * s.channels, s.channels, args.relu, args.y + out + c,
                      args.argmax != nullptr ? args.argmax + out + c : nullptr);
        });
      }
    }
  }
}

// dx[ih][iw] = sum of dy over the windows that cover (ih, iw) and whose winner it is.
void max_pool_backward(const PoolShape& s, const MaxPoolBackward& args, Range images) {
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
              const std::int64_t index = (ih + s.pad_h - oh * s.stride_h) * s.kernel_w + iw + s.pad_w - ow * s.stride_w;
              const std::int64_t out = ((n * s.out_h + oh) * s.out_w + ow) * s.channels + c;
              const IntVec won = lanes.get_bytes(args.argmax + out) == int_broadcast(index);
              sum += select(won, lanes.get(args.dy + out), Vec{});
            }
          }
          put_gradient(args, in + c, sum, lanes);
        });
      }
    }
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
