// Gradient of a convolution with respect to weights and bias:
//   dw[oc][kh][kw][ic] = sum over n, oh, ow of dy[n][oh][ow][oc] * x[n][ih][iw][ic],  db[oc] = sum of dy[..][oc].
// Two ways. "Patch in lanes": the kernel_w * in_c floats under one kernel row are neighbours in memory and fill the
// lanes. Where they would leave too many lanes empty (a first layer with one channel), "images in lanes": both operands
// are transposed a few rows at a time and the lanes are added up at the very end.
#include "column_sums.h"
#include "conv_direct.h"
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

// The memory of patch_gradient, for patch_images(s) images.
struct PatchScratch {
  float* x;            // padded images
  float* strips;       // [image][row of the padded image][column of the output][vectors * kLanes]
  float* spread_dy;    // the gradient of the pooled output, spread
  float* packed_dy;    // [block of channels][image][pixel][channel of the block]
  float* column_sums;  // of dy, for the bias
};

struct PatchSizes {
  std::int64_t x, strips, dy, column_sums;

  // Loads and stores of whole vectors may reach kLanes floats behind an array.
  static std::int64_t with_slack(std::int64_t floats) { return round_up(floats + kLanes, kLanes); }
  HEDDLE_INLINE explicit PatchSizes(const ConvShape& s)
      : x(with_slack(patch_images(s) * cover_h(s) * cover_w(s) * s.in_c)),
        strips(with_slack(patch_images(s) * strip_numel(s, kMaxPatchVectors))),
        dy(with_slack(patch_images(s) * output_numel(s))),
        column_sums(with_slack(column_sums_floats(s.out_c))) {}
  HEDDLE_INLINE std::int64_t all() const { return x + strips + 2 * dy + column_sums; }
  HEDDLE_INLINE PatchScratch cut(float* memory) const {
    return {.x = memory,
            .strips = memory + x,
            .spread_dy = memory + x + strips,
            .packed_dy = memory + x + strips + dy,
            .column_sums = memory + x + strips + 2 * dy};
  }
};

void pad_image(const ConvShape& s, const float* from, float* to) {
  const std::int64_t padded_w = cover_w(s);
  const std::int64_t rows = min64(s.in_h, cover_h(s) - s.pad_h);
  const std::int64_t row_copy = min64(s.in_w, padded_w - s.pad_w) * s.in_c;
  for (std::int64_t ih = 0; ih < rows; ++ih) {
    const float* row = from + ih * s.in_w * s.in_c;
    float* padded = to + ((ih + s.pad_h) * padded_w + s.pad_w) * s.in_c;
    for (std::int64_t i = 0; i < row_copy; ++i) padded[i] = row[i];
  }
}

// Copies the V vectors at x of each row and column of windows, so that tiles read whole cache lines one after another.
template <int V>
void pack_strip(const ConvShape& s, const float* x, float* strip) {
  const std::int64_t row = cover_w(s) * s.in_c, column = s.stride_w * s.in_c;
  for (std::int64_t ih = 0; ih < cover_h(s); ++ih) {
    const float* from = x + ih * row;
    for (std::int64_t ow = 0; ow < s.out_w; ++ow, from += column, strip += V * kLanes) {
      HEDDLE_UNROLL
      for (int v = 0; v < V; ++v) store(strip + v * kLanes, load(from + v * kLanes));
    }
  }
}

void pack_strips(const ConvShape& s, const float* x, std::int64_t images, std::int64_t vectors, float* strips) {
  const std::int64_t padded = cover_h(s) * cover_w(s) * s.in_c;
  for (std::int64_t i = 0; i < images; ++i, x += padded, strips += strip_numel(s, vectors)) {
    if (vectors == 1) pack_strip<1>(s, x, strips);
    if (vectors == 2) pack_strip<2>(s, x, strips);
    if (vectors == 3) pack_strip<3>(s, x, strips);
    if (vectors == 4) pack_strip<4>(s, x, strips);
  }
}

// dy (pixels, out_c) to blocks of channels. Each copy is whole vectors; what they bring too much, the next overwrites.
void pack_channels(const float* dy, std::int64_t pixels, std::int64_t out_c, const ChannelBlocks& blocks, float* out) {
  for (std::int64_t block = 0, first = 0; block < blocks.count; ++block) {
    const std::int64_t size = block_size(blocks, block);
    const std::int64_t copied = round_up(size, kLanes);
    // Pixels whose copy ends inside dy.
    const std::int64_t whole = max64(0, min64(pixels, (pixels * out_c - first - copied + out_c) / out_c));
    const float* from = dy + first;
    for (std::int64_t pixel = 0; pixel < whole; ++pixel, from += out_c, out += size) {
      store(out, load(from));
      for (std::int64_t c = kLanes; c < size; c += kLanes) store(out + c, load(from + c));
    }
    for (std::int64_t pixel = whole; pixel < pixels; ++pixel, from += out_c) {
      for (std::int64_t c = 0; c < size; ++c) *out++ = from[c];
    }
    first += size;
  }
}

// Adds the gradient of `images` images, whose strips for `vectors` vectors are packed, to its columns of partial sums.
void add_patch_tiles(const ConvShape& s, const PatchScratch& scratch, std::int64_t images, std::int64_t vectors,
                     const ChannelBlocks& channels, float* sums) {
  const std::int64_t row_floats = partial_row_floats(s);
  const std::int64_t row = s.out_w * vectors * kLanes;
  PatchTile tile;
  tile.image_x = strip_numel(s, vectors);
  tile.row_x = s.stride_h * row;
  tile.column_x = vectors * kLanes;
  tile.images = images;
  // Without a stride the rows of a strip follow each other as those of dy do.
  tile.rows = s.stride_h == 1 ? 1 : s.out_h;
  tile.columns = s.stride_h == 1 ? s.out_h * s.out_w : s.out_w;
  tile.sum_stride = s.kernel_h * row_floats;
  tile.dy = scratch.packed_dy;
  for (std::int64_t b = 0, first = 0; b < channels.count; ++b) {
    tile.channels = block_size(channels, b);
    for (std::int64_t kh = 0; kh < s.kernel_h; ++kh) {
      tile.x = scratch.strips + kh * row;
      tile.sum = sums + (first * s.kernel_h + kh) * row_floats;
      kPatchFunctions[vectors - 1][tile.channels](tile);
    }
    tile.dy += images * s.out_h * s.out_w * tile.channels;
    first += tile.channels;
  }
}

void patch_gradient(const ConvShape& s, const ConvBackwardWeight& args, Range range) {
  const std::int64_t padded = cover_h(s) * cover_w(s) * s.in_c;
  const PatchSizes sizes(s);
  const PatchScratch scratch = sizes.cut(args.scratch);
  set_zero(args.scratch, sizes.all());
  const std::int64_t row_floats = partial_row_floats(s);
  const ChannelBlocks vectors = channel_blocks(row_floats / kLanes, kMaxPatchVectors);
  for (std::int64_t n = range.begin; n < range.end; n += patch_images(s)) {
    const std::int64_t images = min64(patch_images(s), range.end - n);
    for (std::int64_t i = 0; i < images; ++i) {
      pad_image(s, args.x + (n + i) * input_numel(s), scratch.x + i * padded);
    }
    const float* dy = args.dy + n * output_numel(s);
    if (args.pool != PoolAfter::kNone) {
      for (std::int64_t i = 0; i < images; ++i) {
        spread_image(s, pooled_rows(s, args, n + i, 1, 0, s.out_h), scratch.spread_dy + i * output_numel(s));
      }
      dy = scratch.spread_dy;
    }
    const std::int64_t pixels = images * s.out_h * s.out_w;
    add_to_column_sums(dy, pixels, s.out_c, scratch.column_sums);
    std::int64_t packed_for = 0;
    for (std::int64_t v = 0, first = 0; v < vectors.count; ++v) {
      const std::int64_t count = block_size(vectors, v);
      const ChannelBlocks channels = channel_blocks(s.out_c, max_patch_channels(count));
      if (packed_for != count) pack_channels(dy, pixels, s.out_c, channels, scratch.packed_dy);
      packed_for = count;
      pack_strips(s, scratch.x + first * kLanes, images, count, scratch.strips);
      add_patch_tiles(s, scratch, images, count, channels, args.partial + first * kLanes);
      first += count;
    }
  }
  finish_column_sums(scratch.column_sums, s.out_c, false, args.partial + s.out_c * s.kernel_h * row_floats);
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
  if (patch_fills_lanes(s)) return PatchSizes(s).all();
  const std::int64_t padded = cover_h(s) * cover_w(s) * s.in_c;
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
  if (direct_applies(shape, args.pool)) return direct_gradient(shape, args, images);
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
