#include "kernels/device/conv2d_direct.cuh"

#include <algorithm>
#include <cstdint>

#include "kernels/launch/launch.h"
#include "kernels/launch/matrix_kernels.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {
namespace {

using device::DirectConv;
using device::kDirectChannels;

// What every GPU gives a block without being asked; these kernels have no other shared memory.
constexpr std::int64_t kSharedFloats = 48 * 1024 / 4;
constexpr int kThreads = 256;
// Threads that keep a large GPU busy. Constants, so that sums do not depend on the model of the GPU.
constexpr std::int64_t kBusyThreads = 132 * 512;
constexpr std::int64_t kBusyBlocks = 264, kMaxSplits = 128;

DirectConv forward_conv(const ConvGeometry& g) {
  return {.batch = g.batch,
          .source_h = g.in_h,
          .source_w = g.in_w,
          .source_c = g.in_c,
          .result_h = g.out_h,
          .result_w = g.out_w,
          .result_c = g.out_c,
          .kernel_h = g.kernel_h,
          .kernel_w = g.kernel_w,
          .step_h = g.stride_h,
          .step_w = g.stride_w,
          .spread_h = 1,
          .spread_w = 1,
          .pad_h = g.padding_h,
          .pad_w = g.padding_w,
          .dilation_h = g.dilation_h,
          .dilation_w = g.dilation_w};
}

// The data gradient as a convolution of dy.
DirectConv gradient_conv(const ConvGeometry& g) {
  return {.batch = g.batch,
          .source_h = g.out_h,
          .source_w = g.out_w,
          .source_c = g.out_c,
          .result_h = g.in_h,
          .result_w = g.in_w,
          .result_c = g.in_c,
          .kernel_h = g.kernel_h,
          .kernel_w = g.kernel_w,
          .step_h = 1,
          .step_w = 1,
          .spread_h = g.stride_h,
          .spread_w = g.stride_w,
          .pad_h = g.dilation_h * (g.kernel_h - 1) - g.padding_h,
          .pad_w = g.dilation_w * (g.kernel_w - 1) - g.padding_w,
          .dilation_h = g.dilation_h,
          .dilation_w = g.dilation_w};
}

std::int64_t tile_rows(const DirectConv& d, std::int64_t result_rows) {
  return (result_rows - 1) * d.step_h + std::int64_t{d.kernel_h - 1} * d.dilation_h + 1;
}
std::int64_t tile_pitch(const DirectConv& d) {
  const std::int64_t columns =
      std::int64_t{d.result_w - 1} * d.step_w + std::int64_t{d.kernel_w - 1} * d.dilation_w + 1;
  return (columns * d.source_c + 3) / 4 * 4;
}
std::int64_t depth(const DirectConv& d) { return std::int64_t{d.kernel_h} * d.kernel_w * d.source_c; }

// Sets how a block cuts its work so that `fixed` floats, and for each row of results `per_row` floats and its part of
// the source, fit into shared memory, in blocks of about `positions` positions. False if not even one row fits.
bool cut(DirectConv& d, std::int64_t fixed, std::int64_t per_row, std::int64_t positions) {
  const std::int64_t pitch = tile_pitch(d);
  const auto floats = [&](std::int64_t rows) { return rows * per_row + tile_rows(d, rows) * pitch; };
  if (fixed + floats(1) > kSharedFloats) return false;
  std::int64_t rows = std::min<std::int64_t>(d.result_h, std::max<std::int64_t>(1, positions / d.result_w));
  while (fixed + floats(rows) > kSharedFloats) --rows;
  // Bands of equal height.
  d.bands = static_cast<int>((d.result_h + rows - 1) / rows);
  d.band_rows = (d.result_h + d.bands - 1) / d.bands;
  d.bands = (d.result_h + d.band_rows - 1) / d.band_rows;
  d.tile_rows = static_cast<int>(tile_rows(d, d.band_rows));
  d.tile_pitch = static_cast<int>(pitch);
  d.images = 1;
  if (d.bands == 1) {
    const std::int64_t wanted = positions / (std::int64_t{d.result_h} * d.result_w);
    const std::int64_t fitting = (kSharedFloats - fixed) / floats(d.band_rows);
    d.images = static_cast<int>(std::clamp<std::int64_t>(std::min(wanted, fitting), 1, d.batch));
  }
  return true;
}

bool cut_conv(DirectConv& d) { return cut(d, depth(d) * kDirectChannels, 0, 2 * kThreads); }

template <class T>
bool fours_fit(std::int64_t row, const T* data) {
  return row % 4 == 0 && is_aligned(data, 4 * sizeof(T));
}

template <bool kGradient, class T>
void run(const char* name, DirectConv d, const device::DirectConvPointers<T>& p, cudaStream_t stream) {
  cut_conv(d);
  d.wide_source = d.spread_w == 1 && std::int64_t{d.pad_w} * d.source_c % 4 == 0 &&
                          fours_fit(std::int64_t{d.source_w} * d.source_c, p.source)
                      ? 1
                      : 0;
  d.wide_result =
      fours_fit(d.result_c, p.result) && fours_fit(d.result_c, p.bias) && fours_fit(d.result_c, p.relu_mask) ? 1 : 0;
  const std::int64_t channel_groups = (d.result_c + kDirectChannels - 1) / kDirectChannels;
  const std::int64_t block_positions = std::int64_t{d.images} * d.band_rows * d.result_w;
  const std::int64_t all = std::int64_t{d.batch} * d.result_h * d.result_w * channel_groups;
  // Two positions a thread share the reading of weights, if that leaves enough threads.
  const int positions = all >= 2 * kBusyThreads ? 2 : 1;
  const auto threads = std::clamp<std::int64_t>((block_positions + positions - 1) / positions, 32, kThreads) / 32 * 32;
  const LaunchShape shape{
      dim3(static_cast<unsigned>((d.batch + d.images - 1) / d.images * d.bands), static_cast<unsigned>(channel_groups)),
      dim3(static_cast<unsigned>(threads)),
      sizeof(float) *
          static_cast<std::size_t>(depth(d) * kDirectChannels + std::int64_t{d.images} * d.tile_rows * d.tile_pitch)};
  const std::int64_t result_count = std::int64_t{d.batch} * d.result_h * d.result_w * d.result_c;
  const auto kernel =
      positions == 2 ? device::conv_direct_kernel<kGradient, 2, T> : device::conv_direct_kernel<kGradient, 1, T>;
  launch(name, kernel, shape, stream,
         {reads(p.source, std::int64_t{d.batch} * d.source_h * d.source_w * d.source_c),
          reads(p.w, depth(d) * d.result_c), reads(p.bias, d.result_c), reads(p.relu_mask, result_count),
          p.add != 0 ? updates(p.result, result_count) : writes(p.result, result_count)},
         d, p);
}

// The weight gradient's cut of columns and splits; the bias gradient is always counted, so that a plan does not depend
// on it.
device::DirectWeightGradient weight_gradient(const ConvGeometry& g) {
  device::DirectWeightGradient s{
      .d = forward_conv(g), .columns = 0, .column_threads = 0, .slices = 0, .splits = 1, .has_bias = 0};
  const auto columns = static_cast<int>(depth(s.d)) + 1;
  s.column_threads = std::min(columns, 64);
  s.slices = std::min(kThreads / s.column_threads, std::max(1, g.out_w));
  const std::int64_t groups = std::int64_t{(columns + s.column_threads - 1) / s.column_threads} *
                              ((g.out_c + kDirectChannels - 1) / kDirectChannels);
  const std::int64_t wanted = groups > kMaxTickets ? 1 : (kBusyBlocks + groups - 1) / groups;
  s.splits = static_cast<int>(std::clamp<std::int64_t>(std::min(wanted, kMaxSplits), 1, std::max(1, g.batch)));
  return s;
}
bool cut_weight_gradient(DirectConv& d) {
  return cut(d, 0, std::int64_t{d.result_w} * kDirectChannels, std::int64_t{1} << 20);
}

}  // namespace

bool direct_conv_forward_takes(const ConvGeometry& g) {
  DirectConv d = forward_conv(g);
  return g.groups == 1 && cut_conv(d);
}
bool direct_conv_backward_data_takes(const ConvGeometry& g) {
  DirectConv d = gradient_conv(g);
  return g.groups == 1 && cut_conv(d);
}
bool direct_conv_backward_weight_takes(const ConvGeometry& g) {
  DirectConv d = forward_conv(g);
  return g.groups == 1 && cut_weight_gradient(d);
}

template <class T>
void direct_conv_forward(const ConvForwardArguments<T>& call, cudaStream_t stream) {
  run<false, T>("conv_direct_forward", forward_conv(call.g),
                {.source = call.x,
                 .w = call.w,
                 .result = call.y,
                 .bias = call.bias,
                 .relu_mask = nullptr,
                 .relu = call.relu ? 1 : 0,
                 .add = 0},
                stream);
}

template <class T>
void direct_conv_backward_data(const ConvBackwardDataArguments<T>& call, cudaStream_t stream) {
  run<true, T>("conv_direct_backward_data", gradient_conv(call.g),
               {.source = call.dy,
                .w = call.w,
                .result = call.dx,
                .bias = nullptr,
                .relu_mask = call.relu_mask,
                .relu = 0,
                .add = call.add ? 1 : 0},
               stream);
}

SplitPlan plan_direct_conv_backward_weight(const ConvGeometry& g) {
  const device::DirectWeightGradient s = weight_gradient(g);
  if (s.splits <= 1) return {};
  const std::int64_t columns = depth(s.d) + 1;
  const std::int64_t groups =
      (columns + s.column_threads - 1) / s.column_threads * ((g.out_c + kDirectChannels - 1) / kDirectChannels);
  return {s.splits, groups * s.splits * s.column_threads * kDirectChannels, groups};
}

template <class T>
void direct_conv_backward_weight(const ConvBackwardWeightArguments<T>& call, const SplitScratch& scratch,
                                 cudaStream_t stream) {
  const ConvGeometry& g = call.g;
  device::DirectWeightGradient s = weight_gradient(g);
  DirectConv& d = s.d;
  cut_weight_gradient(d);
  s.splits = scratch.plan.splits;
  s.has_bias = call.db == nullptr ? 0 : 1;
  s.columns = static_cast<int>(depth(d)) + s.has_bias;
  d.images = 1;
  d.wide_source =
      std::int64_t{d.pad_w} * d.source_c % 4 == 0 && fours_fit(std::int64_t{d.source_w} * d.source_c, call.x) ? 1 : 0;
  d.wide_result = fours_fit(d.result_c, call.dy) ? 1 : 0;
  const std::int64_t bands =
      std::int64_t{d.band_rows} * d.result_w * kDirectChannels + std::int64_t{d.tile_rows} * d.tile_pitch;
  const std::int64_t slices = std::int64_t{s.slices} * s.column_threads * kDirectChannels;
  // The grid covers the bias gradient's column whether it is wanted or not, as the plan does.
  const LaunchShape shape{dim3(static_cast<unsigned>(s.splits),
                               static_cast<unsigned>((depth(d) + 1 + s.column_threads - 1) / s.column_threads),
                               static_cast<unsigned>((g.out_c + kDirectChannels - 1) / kDirectChannels)),
                          dim3(kThreads), sizeof(float) * static_cast<std::size_t>(std::max(bands, slices))};
  const std::int64_t dw_count = depth(d) * g.out_c;
  Access dw = writes(call.dw, dw_count), db = writes(call.db, g.out_c);
  dw.read = db.read = call.add;
  launch("conv_direct_backward_weight", device::conv_direct_weight_kernel<T>, shape, stream,
         {reads(call.x, std::int64_t{g.batch} * g.in_h * g.in_w * g.in_c),
          reads(call.dy, std::int64_t{g.batch} * g.out_h * g.out_w * g.out_c), dw, db,
          updates(scratch.partials, scratch.plan.partial_floats), updates(scratch.tickets, scratch.plan.tickets)},
         s,
         device::DirectWeightGradientPointers<T>{call.x, call.dy, call.dw, call.db, call.add ? 1 : 0, scratch.partials,
                                                 scratch.tickets});
}

template void direct_conv_forward(const ConvForwardArguments<float>&, cudaStream_t);
template void direct_conv_forward(const ConvForwardArguments<__nv_bfloat16>&, cudaStream_t);
template void direct_conv_backward_data(const ConvBackwardDataArguments<float>&, cudaStream_t);
template void direct_conv_backward_data(const ConvBackwardDataArguments<__nv_bfloat16>&, cudaStream_t);
template void direct_conv_backward_weight(const ConvBackwardWeightArguments<float>&, const SplitScratch&, cudaStream_t);
template void direct_conv_backward_weight(const ConvBackwardWeightArguments<__nv_bfloat16>&, const SplitScratch&,
                                          cudaStream_t);

}  // namespace heddle::cuda
