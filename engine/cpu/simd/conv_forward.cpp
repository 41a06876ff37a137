// Convolution forward with images in lanes: a block of images is transposed once, then every output pixel is a chain of
// multiply-adds with full vectors. Rows of the output go back to (N,H,W,C) as soon as they are complete.
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
  // Forward: an image, two rows of the output, a row of the pooled output and of its codes. Backward: an image, a row.
  const std::int64_t forward = input_numel(s) + 3 * s.out_w * s.out_c;
  const std::int64_t backward = output_numel(s) + max64(s.in_w * s.in_c, s.out_w * s.out_c);
  const std::int64_t lanes = max64(forward, backward) * kImageBlock;
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

// One row of the output of one block of images, in lanes: out[ow][oc][width].
void forward_row(const ConvShape& s, const ConvForward& args, const float* x, std::int64_t oh, std::int64_t vectors,
                 float* out) {
  const std::int64_t width = vectors * kLanes;
  const std::int64_t ih = oh * s.stride_h - s.pad_h;
  const std::int64_t kh = first_tap(ih);
  const std::int64_t kh_end = last_tap(ih, s.kernel_h, s.in_h);
  const ChannelBlocks blocks = channel_blocks(s.out_c, kMaxChannelBlock);
  const std::int64_t taps_per_channel = s.kernel_h * s.kernel_w * s.in_c;
  for (std::int64_t block = 0, first = 0; block < blocks.count; ++block) {
    const std::int64_t size = block_size(blocks, block);
    const TapsFunction accumulate = kTapsFunctions[size][vectors - 1];
    for (std::int64_t ow = 0; ow < s.out_w; ++ow) {
      const std::int64_t iw = ow * s.stride_w - s.pad_w;
      const std::int64_t kw = first_tap(iw);
      const std::int64_t kw_end = last_tap(iw, s.kernel_w, s.in_w);
      Taps taps;
      taps.a = x + ((ih + kh) * s.in_w + iw + kw) * s.in_c * width;
      taps.w = args.packed_w + first * taps_per_channel + (kh * s.kernel_w + kw) * s.in_c * size;
      taps.rows = kh_end - kh;
      taps.row_a = s.in_w * s.in_c;
      taps.row_w = s.kernel_w * s.in_c;
      taps.segments = 1;
      taps.segment_a = 0;
      taps.segment_w = 0;
      taps.length = (kw_end - kw) * s.in_c;
      taps.bias = args.bias != nullptr ? args.bias + first : nullptr;
      taps.relu = args.relu;
      taps.out = out + (ow * s.out_c + first) * width;
      accumulate(taps);
    }
    first += size;
  }
}

}  // namespace

void conv_forward(const ConvShape& s, const ConvForward& args, Range images) {
  const bool pooled = args.pool != PoolAfter::kNone;
  const ConvShape part = pooled_part(s, args.pool);
  ConvForward rows_args = args;
  // The maximum of four applies its ReLU itself.
  rows_args.relu = args.relu && args.pool != PoolAfter::kMax;
  const std::int64_t rows_a_turn = pooled ? 2 : 1;
  const std::int64_t row_numel = part.out_w * part.out_c;
  const std::int64_t y_row_numel = row_numel / rows_a_turn;
  const std::int64_t y_numel = part.out_h / rows_a_turn * y_row_numel;
  for (std::int64_t n = images.begin; n < images.end; n += kImageBlock) {
    const std::int64_t count = min64(kImageBlock, images.end - n);
    const std::int64_t vectors = count > kLanes ? 2 : 1;
    const std::int64_t width = vectors * kLanes;
    float* x = args.scratch;
    float* rows = x + input_numel(s) * width;
    float* pooled_row = rows + 2 * row_numel * width;
    float* code = pooled_row + y_row_numel * width;
    images_to_lanes(args.x + n * input_numel(s), {input_numel(s), count, input_numel(s)}, width, x);
    const LaneRun run = {y_numel, count, y_row_numel};
    for (std::int64_t oh = 0; oh < part.out_h; oh += rows_a_turn) {
      const std::int64_t at = n * y_numel + oh / rows_a_turn * y_row_numel;
      for (std::int64_t i = 0; i < rows_a_turn; ++i) {
        forward_row(part, rows_args, x, oh + i, vectors, rows + i * row_numel * width);
      }
      if (!pooled) {
        lanes_to_images(rows, run, width, {.dst = args.y + at});
        continue;
      }
      pool_lane_rows(part, args, rows, width, pooled_row, code);
      lanes_to_images(pooled_row, run, width, {.dst = args.y + at});
      if (args.pool_code != nullptr) lanes_to_bytes(code, run, width, args.pool_code + at);
    }
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
