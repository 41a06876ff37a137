// Gradient of a convolution with respect to its input, images in lanes. Every input pixel gathers from the output
// pixels whose windows cover it:
//   dx[ih][iw][ic] = sum over kh, kw, oc of dy[oh][ow][oc] * w[oc][kh][kw][ic],
//   oh * stride_h = ih + pad_h - kh, ow * stride_w = iw + pad_w - kw, inside the output.
// Packed weights have kh and kw mirrored, so that both operands run upwards.
#include "conv_pool.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {

// packed[block][mirrored kh][mirrored kw][oc][input channel of the block]
void conv_pack_backward(const ConvShape& s, const float* w, float* packed) {
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  const ChannelBlocks blocks = channel_blocks(s.in_c, kMaxChannelBlock);
  for (std::int64_t block = 0, first = 0; block < blocks.count; ++block) {
    const std::int64_t size = block_size(blocks, block);
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      for (std::int64_t oc = 0; oc < s.out_c; ++oc) {
        const float* from = w + (oc * taps + taps - 1 - tap) * s.in_c + first;
        for (std::int64_t c = 0; c < size; ++c) *packed++ = from[c];
      }
    }
    first += size;
  }
}

namespace {

// The output positions o in [begin, end) whose windows cover an input position, and the mirrored kernel index of the
// first; each next position is one stride further in the mirrored kernel.
struct Cover {
  std::int64_t begin, end, mirrored;
};

// position is the input index plus the padding.
Cover cover(std::int64_t position, std::int64_t kernel, std::int64_t stride, std::int64_t out_size) {
  const std::int64_t begin = position < kernel ? 0 : (position - kernel) / stride + 1;
  const std::int64_t end = max64(begin, min64(out_size, position / stride + 1));
  return {begin, end, kernel - 1 - (position - begin * stride)};
}

// One row of dx of one block of images, in lanes: out[iw][ic][width].
void backward_row(const ConvShape& s, const float* packed_w, const float* dy, std::int64_t ih, std::int64_t vectors,
                  float* out) {
  const std::int64_t width = vectors * kLanes;
  const Cover rows = cover(ih + s.pad_h, s.kernel_h, s.stride_h, s.out_h);
  const ChannelBlocks blocks = channel_blocks(s.in_c, kMaxChannelBlock);
  const std::int64_t taps_per_channel = s.kernel_h * s.kernel_w * s.out_c;
  for (std::int64_t block = 0, first = 0; block < blocks.count; ++block) {
    const std::int64_t size = block_size(blocks, block);
    const TapsFunction accumulate = kTapsFunctions[size][vectors - 1];
    Taps taps = {};
    taps.row_a = s.out_w * s.out_c;
    taps.row_w = s.stride_h * s.kernel_w * s.out_c;
    taps.segment_a = s.out_c;
    taps.segment_w = s.stride_w * s.out_c;
    for (std::int64_t iw = 0; iw < s.in_w; ++iw) {
      const Cover columns = cover(iw + s.pad_w, s.kernel_w, s.stride_w, s.out_w);
      const std::int64_t run = columns.end - columns.begin;
      taps.a = dy + (rows.begin * s.out_w + columns.begin) * s.out_c * width;
      taps.w = packed_w + first * taps_per_channel + (rows.mirrored * s.kernel_w + columns.mirrored) * s.out_c * size;
      taps.rows = run > 0 ? rows.end - rows.begin : 0;
      taps.segments = s.stride_w == 1 ? 1 : run;
      taps.length = s.stride_w == 1 ? run * s.out_c : s.out_c;
      taps.out = out + (iw * s.in_c + first) * width;
      accumulate(taps);
    }
    first += size;
  }
}

}  // namespace

void conv_backward_data(const ConvShape& shape, const ConvBackwardData& args, Range images) {
  const ConvShape s = pooled_part(shape, args.pool);
  for (std::int64_t n = images.begin; n < images.end; n += kImageBlock) {
    const std::int64_t count = min64(kImageBlock, images.end - n);
    const std::int64_t vectors = count > kLanes ? 2 : 1;
    const std::int64_t width = vectors * kLanes;
    float* dy = args.scratch;
    float* row = dy + output_numel(s) * width;
    if (args.pool == PoolAfter::kNone) {
      images_to_lanes(args.dy + n * output_numel(s), {output_numel(s), count, output_numel(s)}, width, dy);
    } else {
      const std::int64_t pooled_numel = output_numel(s) / 4;
      const PooledRows pooled = {.dy = args.dy + n * pooled_numel,
                                 .code = args.pool_code + n * pooled_numel,
                                 .pool = args.pool,
                                 .images = count,
                                 .image_stride = pooled_numel,
                                 .pooled_rows = s.out_h / 2};
      spread_lane_rows(s, pooled, width, dy, row);
    }
    for (std::int64_t ih = 0; ih < s.in_h; ++ih) {
      backward_row(s, args.packed_w, dy, ih, vectors, row);
      const std::int64_t offset = n * input_numel(s) + ih * s.in_w * s.in_c;
      const float* mask = args.relu_mask != nullptr ? args.relu_mask + offset : nullptr;
      lanes_to_images(row, {input_numel(s), count, s.in_w * s.in_c}, width,
                      {.dst = args.dx + offset, .mask = mask, .accumulate = args.accumulate});
    }
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
