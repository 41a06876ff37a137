// Gradient of a convolution with respect to weights and bias:
//   dw[oc][kh][kw][ic] = sum over n, oh, ow of dy[n][oh][ow][oc] * x[n][ih][iw][ic],  db[oc] = sum of dy[..][oc].
// Two ways. "Patch in lanes": the kernel_w * in_c floats under one kernel row are neighbours in memory and fill the
// lanes. Where they would leave too many lanes empty (a first layer with one channel), "images in lanes": both operands
// are transposed a few rows at a time and the lanes are added up at the very end.
#include "column_sums.h"
#include "conv_pool.h"
#include "conv_weight.h"
#include "lanes.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

void set_zero(float* p, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) p[i] = 0.0f;
}

// Output rows [oh, oh + rows) of images from n on, as the pooled gradient sees them.
PooledRows pooled_rows(const ConvShape& s, const ConvBackwardWeight& args, std::int64_t n, std::int64_t images,
                       std::int64_t oh, std::int64_t rows) {
  const std::int64_t pooled_numel = output_numel(s) / 4;
  const std::int64_t first = n * pooled_numel + oh / 2 * (s.out_w / 2 * s.out_c);
  return {.dy = args.dy + first,
          .code = args.pool_code + first,
          .pool = args.pool,
          .images = images,
          .image_stride = pooled_numel,
          .pooled_rows = rows / 2};
}

void patch_gradient(const ConvShape& s, const ConvBackwardWeight& args, Range images) {
  const std::int64_t padded_w = cover_w(s), padded_h = cover_h(s);
  const std::int64_t padded = padded_h * padded_w * s.in_c;
  float* x = args.scratch;
  float* column_sums = x + round_up(padded + kLanes, kLanes);
  float* spread_dy = column_sums + column_sums_floats(s.out_c);
  set_zero(x, padded + kLanes);
  set_zero(column_sums, column_sums_floats(s.out_c));
  const std::int64_t row_floats = partial_row_floats(s);
  const ChannelBlocks vectors = channel_blocks(row_floats / kLanes, kMaxPatchVectors);
  const std::int64_t rows = min64(s.in_h, padded_h - s.pad_h);
  const std::int64_t row_copy = min64(s.in_w, padded_w - s.pad_w) * s.in_c;
  for (std::int64_t n = images.begin; n < images.end; ++n) {
    for (std::int64_t ih = 0; ih < rows; ++ih) {
      const float* from = args.x + n * input_numel(s) + ih * s.in_w * s.in_c;
      float* to = x + ((ih + s.pad_h) * padded_w + s.pad_w) * s.in_c;
      for (std::int64_t i = 0; i < row_copy; ++i) to[i] = from[i];
    }
    const float* dy = args.dy + n * output_numel(s);
    if (args.pool != PoolAfter::kNone) {
      spread_image(s, pooled_rows(s, args, n, 1, 0, s.out_h), spread_dy);
      dy = spread_dy;
    }
    add_to_column_sums(dy, s.out_h * s.out_w, s.out_c, column_sums);
    for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
      for (std::int64_t v = 0, first_vector = 0; v < vectors.count; ++v) {
        const std::int64_t vector_count = block_size(vectors, v);
        const ChannelBlocks channels = channel_blocks(s.out_c, max_patch_channels(vector_count));
        for (std::int64_t b = 0, first = 0; b < channels.count; ++b) {
          const std::int64_t channel_count = block_size(channels, b);
          PatchTile tile;
          tile.x = x + kh * padded_w * s.in_c + first_vector * kLanes;
          tile.row_x = s.stride_h * padded_w * s.in_c;
          tile.column_x = s.stride_w * s.in_c;
          tile.dy = dy + first;
          tile.channels = s.out_c;
          tile.rows = s.out_h;
          tile.columns = s.out_w;
          tile.sum = args.partial + (first * s.kernel_h + kh) * row_floats + first_vector * kLanes;
          tile.sum_stride = s.kernel_h * row_floats;
          kPatchFunctions[vector_count - 1][channel_count](tile);
          first += channel_count;
        }
        first_vector += vector_count;
      }
    }
  }
  finish_column_sums(column_sums, s.out_c, false, args.partial + s.out_c * s.kernel_h * row_floats);
}

// Adds one block of output rows [oh, oh + rows) to the lane sums. x and dy are in lanes, dy starts at row oh.
void add_lane_rows(const ConvShape& s, const float* x, const float* dy, std::int64_t oh, std::int64_t rows,
                   float* sums) {
  const std::int64_t padded_w = cover_w(s);
  const std::int64_t row_taps = s.kernel_w * s.in_c;
  const ChannelBlocks taps = channel_blocks(row_taps, kMaxLaneTaps);
  const ChannelBlocks channels = channel_blocks(s.out_c, kMaxLaneChannels);
  for (std::int64_t b = 0, first = 0; b < channels.count; ++b) {
    const std::int64_t channel_count = block_size(channels, b);
    for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
      for (std::int64_t t = 0, first_tap = 0; t < taps.count; ++t) {
        const std::int64_t tap_count = block_size(taps, t);
        PatchTile tile;
        tile.x = x + (((oh * s.stride_h + kh) * padded_w) * s.in_c + first_tap) * kLanes;
        tile.row_x = s.stride_h * padded_w * s.in_c * kLanes;
        tile.column_x = s.stride_w * s.in_c * kLanes;
        tile.dy = dy + first * kLanes;
        tile.channels = s.out_c * kLanes;
        tile.rows = rows;
        tile.columns = s.out_w;
        tile.sum = sums + ((first * s.kernel_h + kh) * row_taps + first_tap) * kLanes;
        tile.sum_stride = s.kernel_h * row_taps * kLanes;
        kLaneFunctions[channel_count - 1][tap_count - 1](tile);
        first_tap += tap_count;
      }
    }
    first += channel_count;
  }
  float* bias_sums = sums + s.out_c * s.kernel_h * row_taps * kLanes;
  for (std::int64_t oc = 0; oc < s.out_c; ++oc) {
    Vec sum[2] = {};
    for (std::int64_t p = 0; p < rows * s.out_w; ++p) sum[p & 1] += load(dy + (p * s.out_c + oc) * kLanes);
    store(bias_sums + oc * kLanes, load(bias_sums + oc * kLanes) + (sum[0] + sum[1]));
  }
}

void lane_gradient(const ConvShape& s, const ConvBackwardWeight& args, Range images) {
  const std::int64_t padded_w = cover_w(s), padded_h = cover_h(s);
  const std::int64_t row_taps = s.kernel_w * s.in_c;
  const std::int64_t sums_count = s.out_c * (s.kernel_h * row_taps + 1);
  float* sums = args.scratch;
  float* x = sums + sums_count * kLanes;
  float* dy = x + padded_h * padded_w * s.in_c * kLanes;
  float* pooled_scratch = dy + lane_block_rows(s) * s.out_w * s.out_c * kLanes;
  set_zero(sums, sums_count * kLanes + padded_h * padded_w * s.in_c * kLanes);
  const std::int64_t rows_in = min64(s.in_h, padded_h - s.pad_h);
  const std::int64_t row_copy = min64(s.in_w, padded_w - s.pad_w) * s.in_c;
  const std::int64_t block_rows = lane_block_rows(s);
  for (std::int64_t n = images.begin; n < images.end; n += kLanes) {
    const std::int64_t count = min64(kLanes, images.end - n);
    for (std::int64_t ih = 0; ih < rows_in; ++ih) {
      const float* from = args.x + n * input_numel(s) + ih * s.in_w * s.in_c;
      float* to = x + ((ih + s.pad_h) * padded_w + s.pad_w) * s.in_c * kLanes;
      images_to_lanes(from, {input_numel(s), count, row_copy}, kLanes, to);
    }
    for (std::int64_t oh = 0; oh < s.out_h; oh += block_rows) {
      const std::int64_t rows = min64(block_rows, s.out_h - oh);
      if (args.pool == PoolAfter::kNone) {
        const float* from = args.dy + n * output_numel(s) + oh * s.out_w * s.out_c;
        images_to_lanes(from, {output_numel(s), count, rows * s.out_w * s.out_c}, kLanes, dy);
      } else {
        spread_lane_rows(s, pooled_rows(s, args, n, count, oh, rows), kLanes, dy, pooled_scratch);
      }
      add_lane_rows(s, x, dy, oh, rows, sums);
    }
  }
  const std::int64_t row_floats = partial_row_floats(s);
  for (std::int64_t row = 0; row < s.out_c * s.kernel_h; ++row) {
    for (std::int64_t k = 0; k < row_taps; ++k) {
      args.partial[row * row_floats + k] = sum_lanes(load(sums + (row * row_taps + k) * kLanes));
    }
  }
  const float* bias_sums = sums + s.out_c * s.kernel_h * row_taps * kLanes;
  float* db = args.partial + s.out_c * s.kernel_h * row_floats;
  for (std::int64_t oc = 0; oc < s.out_c; ++oc) db[oc] = sum_lanes(load(bias_sums + oc * kLanes));
}

}  // namespace

std::size_t conv_partial_floats(const ConvShape& s) {
  return static_cast<std::size_t>(round_up(s.out_c * (s.kernel_h * partial_row_floats(s) + 1), kLanes));
}

namespace {

std::int64_t scratch_floats(const ConvShape& s) {
  const std::int64_t padded = cover_h(s) * cover_w(s) * s.in_c;
  if (patch_fills_lanes(s)) {
    return round_up(padded + kLanes, kLanes) + column_sums_floats(s.out_c) + output_numel(s);
  }
  const std::int64_t sums = s.out_c * (s.kernel_h * s.kernel_w * s.in_c + 1);
  return (sums + padded + (lane_block_rows(s) + 1) * s.out_w * s.out_c) * kLanes;
}

}  // namespace

std::size_t conv_weight_scratch_floats(const ConvShape& s) {
  const std::int64_t pooled = scratch_floats(pooled_part(s, PoolAfter::kMax));
  return static_cast<std::size_t>(max64(scratch_floats(s), pooled));
}

void conv_backward_weight(const ConvShape& shape, const ConvBackwardWeight& args, Range images) {
  const ConvShape s = pooled_part(shape, args.pool);
  set_zero(args.partial, static_cast<std::int64_t>(conv_partial_floats(s)));
  if (patch_fills_lanes(s)) {
    patch_gradient(s, args, images);
  } else {
    lane_gradient(s, args, images);
  }
}

void conv_reduce_partials(const ConvShape& s, const ConvReduce& args) {
  const std::int64_t stride = static_cast<std::int64_t>(conv_partial_floats(s));
  const std::int64_t row_taps = s.kernel_w * s.in_c;
  const std::int64_t row_floats = partial_row_floats(s);
  const std::int64_t rows = s.out_c * s.kernel_h;
  for (std::int64_t row = 0; row < rows; ++row) {
    float* dw = args.dw + row * row_taps;
    for (std::int64_t k = 0; k < row_taps; ++k) {
      float sum = args.partials[row * row_floats + k];
      for (std::int64_t p = 1; p < args.count; ++p) sum += args.partials[p * stride + row * row_floats + k];
      dw[k] = args.accumulate ? dw[k] + sum : sum;
    }
  }
  if (args.db == nullptr) return;
  for (std::int64_t oc = 0; oc < s.out_c; ++oc) {
    float sum = args.partials[rows * row_floats + oc];
    for (std::int64_t p = 1; p < args.count; ++p) sum += args.partials[p * stride + rows * row_floats + oc];
    args.db[oc] = args.accumulate ? args.db[oc] + sum : sum;
  }
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
