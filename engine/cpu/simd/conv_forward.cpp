// Convolution forward with images in lanes: a block of images is transposed once, then every output pixel is a chain of
// multiply-adds with full vectors. Rows of the output go back to (N,H,W,C) as soon as they are complete.
#include "conv_direct.h"
#include "conv_pool.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

#if HEDDLE_SIMD_LANES == 16
#define HEDDLE_TAPS(c) \
  { accumulate_taps<c, 1>, accumulate_taps<c, 2> }
const TapsFunction kTapsFunctions[kMaxChannelBlock + 1][2] = {
    {nullptr, nullptr}, HEDDLE_TAPS(1),  HEDDLE_TAPS(2),  HEDDLE_TAPS(3), HEDDLE_TAPS(4),
    HEDDLE_TAPS(5),     HEDDLE_TAPS(6),  HEDDLE_TAPS(7),  HEDDLE_TAPS(8), HEDDLE_TAPS(9),
    HEDDLE_TAPS(10),    HEDDLE_TAPS(11), HEDDLE_TAPS(12), HEDDLE_TAPS(13)};
#else
#define HEDDLE_TAPS(c) \
  { accumulate_taps<c, 1>, accumulate_taps<c, 2> }
const TapsFunction kTapsFunctions[kMaxChannelBlock + 1][2] = {
    {nullptr, nullptr}, HEDDLE_TAPS(1), HEDDLE_TAPS(2), HEDDLE_TAPS(3), HEDDLE_TAPS(4), HEDDLE_TAPS(5), HEDDLE_TAPS(6)};
#endif

std::size_t conv_packed_floats(const ConvShape& s) {
  return static_cast<std::size_t>(s.out_c * s.kernel_h * s.kernel_w * s.in_c);
}

std::size_t conv_scratch_floats(const ConvShape& s) {
  // Forward: an image, a row of the output and of pool codes, four pixels of a block. Backward: an image, a row.
  const std::int64_t forward = input_numel(s) + 2 * s.out_w * s.out_c + 4 * kMaxChannelBlock;
  const std::int64_t backward = output_numel(s) + max64(s.in_w * s.in_c, s.out_w * s.out_c);
  const std::int64_t lanes = max64(max64(forward, backward) * kImageBlock, direct_scratch_floats(s));
  return static_cast<std::size_t>(max64(lanes, static_cast<std::int64_t>(conv_weight_scratch_floats(s))));
}

// packed[block][kh][kw][ic][channel of the block]
void conv_pack_forward(const ConvShape& s, const float* w, float* packed) {
  const std::int64_t taps = s.kernel_h * s.kernel_w * s.in_c;
  const ChannelBlocks blocks = channel_blocks(s.out_c, kMaxChannelBlock);
  for (std::int64_t block = 0, first = 0; block < blocks.count; ++block) {
    const std::int64_t size = block_size(blocks, block);
    for (std::int64_t k = 0; k < taps; ++k) {
      for (std::int64_t c = 0; c < size; ++c) packed[k * size + c] = w[(first + c) * taps + k];
    }
    packed += taps * size;
    first += size;
  }
}

namespace {

// One block of images with one block of output channels; what stays the same over the pixels.
struct ForwardBlock {
  const ConvShape& s;
  const float* x;  // in lanes
  const float* w;  // packed weights of the block
  std::int64_t width;
  std::int64_t size;  // channels
  TapsFunction accumulate;
  Taps taps;
};

ForwardBlock forward_block(const ConvShape& s, const ConvForward& args, const float* x, std::int64_t width,
                           std::int64_t first, std::int64_t size) {
  Taps taps = {};
  taps.row_a = s.in_w * s.in_c;
  taps.row_w = s.kernel_w * s.in_c;
  taps.segments = 1;
  taps.bias = args.bias != nullptr ? args.bias + first : nullptr;
  // The maximum of four applies its ReLU itself.
  taps.relu = args.relu && args.pool != PoolAfter::kMax;
  const float* w = args.packed_w + first * s.kernel_h * s.kernel_w * s.in_c;
  return {s, x, w, width, size, kTapsFunctions[size][width / kLanes - 1], taps};
}

// One output pixel: out[channel of the block][width].
HEDDLE_INLINE void forward_pixel(ForwardBlock& block, std::int64_t oh, std::int64_t ow, float* out) {
  const ConvShape& s = block.s;
  const std::int64_t ih = oh * s.stride_h - s.pad_h, iw = ow * s.stride_w - s.pad_w;
  const std::int64_t kh = first_tap(ih), kw = first_tap(iw);
  block.taps.a = block.x + ((ih + kh) * s.in_w + iw + kw) * s.in_c * block.width;
  block.taps.w = block.w + (kh * s.kernel_w + kw) * s.in_c * block.size;
  block.taps.rows = last_tap(ih, s.kernel_h, s.in_h) - kh;
  block.taps.length = (last_tap(iw, s.kernel_w, s.in_w) - kw) * s.in_c;
  block.taps.out = out;
  block.accumulate(block.taps);
}

// Row oh of y, in lanes: y[ow][oc][width]; if pooled, row oh of the pooled y and its codes. window holds four pixels of
// one block of channels, which never leave the first-level cache.
void forward_row(const ConvShape& s, const ConvForward& args, const float* x, std::int64_t oh, std::int64_t width,
                 float* y, float* code, float* window) {
  const ChannelBlocks blocks = channel_blocks(s.out_c, kMaxChannelBlock);
  for (std::int64_t b = 0, first = 0; b < blocks.count; ++b) {
    const std::int64_t size = block_size(blocks, b);
    ForwardBlock block = forward_block(s, args, x, width, first, size);
    const std::int64_t columns = args.pool == PoolAfter::kNone ? s.out_w : s.out_w / 2;
    for (std::int64_t ow = 0; ow < columns; ++ow) {
      const std::int64_t at = (ow * s.out_c + first) * width;
      if (args.pool == PoolAfter::kNone) {
        forward_pixel(block, oh, ow, y + at);
        continue;
      }
      for (std::int64_t i = 0; i < 4; ++i) {
        forward_pixel(block, 2 * oh + i / 2, 2 * ow + i % 2, window + i * size * width);
      }
      pool_lane_window(args, window, size * width, y + at, code + at);
    }
    first += size;
  }
}

}  // namespace

void conv_forward(const ConvShape& s, const ConvForward& args, Range images) {
  if (direct_applies(s, args.pool)) return direct_forward(s, args, images);
  const bool pooled = args.pool != PoolAfter::kNone;
  const std::int64_t rows = pooled ? s.out_h / 2 : s.out_h;
  const std::int64_t row_numel = (pooled ? s.out_w / 2 : s.out_w) * s.out_c;
  for (std::int64_t n = images.begin; n < images.end; n += kImageBlock) {
    const std::int64_t count = min64(kImageBlock, images.end - n);
    const std::int64_t width = count > kLanes ? 2 * kLanes : kLanes;
    float* x = args.scratch;
    float* row = x + input_numel(s) * width;
    float* code = row + row_numel * width;
    float* window = code + row_numel * width;
    images_to_lanes(args.x + n * input_numel(s), {input_numel(s), count, input_numel(s)}, width, x);
    const LaneRun run = {rows * row_numel, count, row_numel};
    for (std::int64_t oh = 0; oh < rows; ++oh) {
      const std::int64_t at = (n * rows + oh) * row_numel;
      forward_row(s, args, x, oh, width, row, code, window);
      lanes_to_images(row, run, width, {.dst = args.y + at});
      if (pooled && args.pool_code != nullptr) lanes_to_bytes(code, run, width, args.pool_code + at);
    }
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
