#include "kernels/device/conv2d_operands.cuh"

#include "kernels/launch/tile_gemm.h"

namespace heddle::cuda {
namespace {

struct Counts {
  std::int64_t x, w, y;
};
Counts counts(const ConvGeometry& g) {
  return {std::int64_t{g.batch} * g.in_h * g.in_w * g.in_c,
          std::int64_t{g.out_c} * g.kernel_h * g.kernel_w * g.group_in_c,
          std::int64_t{g.batch} * g.out_h * g.out_w * g.out_c};
}
std::int64_t taps(const ConvGeometry& g) { return std::int64_t{g.kernel_h} * g.kernel_w; }

TileSizes forward_sizes(const ConvGeometry& g) {
  return {g.groups, std::int64_t{g.batch} * g.out_h * g.out_w, g.group_out_c, taps(g) * g.group_in_c};
}
TileSizes backward_data_sizes(const ConvGeometry& g) {
  return {g.groups, std::int64_t{g.batch} * g.in_h * g.in_w, g.group_in_c, taps(g) * g.group_out_c};
}
TileSizes backward_weight_sizes(const ConvGeometry& g) {
  return {g.groups, g.group_out_c, taps(g) * g.group_in_c, std::int64_t{g.batch} * g.out_h * g.out_w};
}

template <class T>
int wide_channels(int group_channels, const T* data) {
  return group_channels % 4 == 0 && fours_aligned(data) ? 1 : 0;
}

}  // namespace

SplitPlan plan_conv_forward(const ConvGeometry& g) { return plan_tiles(forward_sizes(g)); }
SplitPlan plan_conv_backward_data(const ConvGeometry& g) { return plan_tiles(backward_data_sizes(g)); }
SplitPlan plan_conv_backward_weight(const ConvGeometry& g) { return plan_tiles(backward_weight_sizes(g)); }

template <class T>
void conv_forward(const ConvForwardArguments<T>& call, const SplitScratch& scratch, cudaStream_t stream) {
  const ConvGeometry& g = call.g;
  const Counts count = counts(g);
  const int depth = g.kernel_h * g.kernel_w * g.group_in_c;
  const device::ConvWindowOperand<T> x{call.x, g, wide_channels(g.group_in_c, call.x)};
  const device::PlainOperand<T, true> w{call.w,        depth, static_cast<long long>(g.group_out_c) * depth,
                                        g.group_out_c, depth, depth % 4 == 0 && fours_aligned(call.w) ? 1 : 0};
  device::GemmOutput<T> out{.y = call.y,
                            .bias = call.bias,
                            .relu_mask = nullptr,
                            .row_sums = nullptr,
                            .ld = g.out_c,
                            .stride_z = g.group_out_c,
                            .bias_stride_z = g.group_out_c,
                            .relu = call.relu ? 1 : 0,
                            .add = 0,
                            .wide = 0};
  out.wide = is_wide(out) ? 1 : 0;
  tile_gemm("conv_forward", x, w, out, forward_sizes(g), scratch,
            {reads(call.x, count.x), reads(call.w, count.w), writes(call.y, count.y)}, stream);
}

template <class T>
void conv_backward_data(const ConvBackwardDataArguments<T>& call, const SplitScratch& scratch, cudaStream_t stream) {
  const ConvGeometry& g = call.g;
  const Counts count = counts(g);
  const device::ConvSeenByOperand<T> dy{call.dy, g, wide_channels(g.group_out_c, call.dy)};
  const device::ConvTransposedWeights<T> w{call.w, g, wide_channels(g.group_in_c, call.w)};
  device::GemmOutput<T> out{.y = call.dx,
                            .bias = nullptr,
                            .relu_mask = call.relu_mask,
                            .row_sums = nullptr,
                            .ld = g.in_c,
                            .stride_z = g.group_in_c,
                            .bias_stride_z = 0,
                            .relu = 0,
                            .add = call.add ? 1 : 0,
                            .wide = 0};
  out.wide = is_wide(out) ? 1 : 0;
  tile_gemm("conv_backward_data", dy, w, out, backward_data_sizes(g), scratch,
            {reads(call.dy, count.y), reads(call.w, count.w),
             call.add ? updates(call.dx, count.x) : writes(call.dx, count.x)},
            stream);
}

template <class T>
void conv_backward_weight(const ConvBackwardWeightArguments<T>& call, const SplitScratch& scratch,
                          cudaStream_t stream) {
  const ConvGeometry& g = call.g;
  const Counts count = counts(g);
  const TileSizes sizes = backward_weight_sizes(g);
  const device::PlainOperand<T, false> dy{call.dy,
                                          g.out_c,
                                          g.group_out_c,
                                          g.group_out_c,
                                          static_cast<int>(sizes.depth),
                                          g.out_c % 4 == 0 ? wide_channels(g.group_out_c, call.dy) : 0};
  const device::ConvSeenOperand<T> x{call.x, g, wide_channels(g.group_in_c, call.x)};
  device::GemmOutput<T> out{.y = call.dw,
                            .bias = nullptr,
                            .relu_mask = nullptr,
                            .row_sums = call.db,
                            .ld = sizes.columns,
                            .stride_z = sizes.rows * sizes.columns,
                            .bias_stride_z = 0,
                            .relu = 0,
                            .add = call.add ? 1 : 0,
                            .wide = 0};
  out.wide = is_wide(out) ? 1 : 0;
  tile_gemm("conv_backward_weight", dy, x, out, sizes, scratch,
            {reads(call.dy, count.y), reads(call.x, count.x),
             call.add ? updates(call.dw, count.w) : writes(call.dw, count.w)},
            stream);
}

#define HEDDLE_INSTANTIATE(T)                                                                               \
  template void conv_forward(const ConvForwardArguments<T>&, const SplitScratch&, cudaStream_t);            \
  template void conv_backward_data(const ConvBackwardDataArguments<T>&, const SplitScratch&, cudaStream_t); \
  template void conv_backward_weight(const ConvBackwardWeightArguments<T>&, const SplitScratch&, cudaStream_t);
HEDDLE_INSTANTIATE(float)
HEDDLE_INSTANTIATE(__nv_bfloat16)
#undef HEDDLE_INSTANTIATE

}  // namespace heddle::cuda
