// Convolution by the own SIMD kernels: threads, scratch and packed weights around engine/cpu/simd.
#include <algorithm>

#include "engine/core/parallel.h"
#include "engine/cpu/conv2d_list.h"
#include "engine/cpu/packed_weights.h"
#include "engine/cpu/simd/simd_kernels.h"

namespace heddle::cpu {
namespace {

using simd::ConvShape;
using simd::Range;
using simd::SimdKernels;

constexpr std::int64_t kSimdKernel = 2;  // in PackedLayout; oneDNN's formats have 1
enum : std::int64_t { kForward, kBackwardData };

// The pooling behind a convolution, and the code of its windows (undefined: not wanted).
struct Pooling {
  simd::PoolAfter kind = simd::PoolAfter::kNone;
  Tensor code = {};

  const std::uint8_t* code_data() const { return code.defined() ? code.host_data<std::uint8_t>() : nullptr; }
};

Pooling pooling_of(PoolKind kind, const Tensor& code) {
  return {kind == PoolKind::max ? simd::PoolAfter::kMax : simd::PoolAfter::kAverage, code};
}

ConvShape shape_of(const ConvSizes& s) {
  return {.in_h = s.in_h,
          .in_w = s.in_w,
          .in_c = s.in_c,
          .out_h = s.out_h,
          .out_w = s.out_w,
          .out_c = s.out_c,
          .kernel_h = s.kernel_h,
          .kernel_w = s.kernel_w,
          .stride_h = s.params.stride_h,
          .stride_w = s.params.stride_w,
          .pad_h = s.params.padding_h,
          .pad_w = s.params.padding_w};
}

// Memory of `count` floats for each part, each part's on its own cache lines.
class PartScratch {
 public:
  PartScratch(int parts, std::size_t floats)
      : stride_((floats + 15) / 16 * 16),
        memory_(Storage::allocate(static_cast<std::size_t>(parts) * stride_ * sizeof(float), Device::cpu())) {}
  float* of(int part) const { return static_cast<float*>(memory_->data()) + static_cast<std::size_t>(part) * stride_; }

 private:
  std::size_t stride_;
  std::shared_ptr<Storage> memory_;
};

// The images cut into units that the kernels handle at full speed; smaller ones where there are more threads than
// units.
struct ImageUnits {
  std::int64_t batch, unit, count;

  ImageUnits(std::int64_t images, std::int64_t image_block) : batch(images), unit(image_block) {
    if (unit > 1 && (batch + unit - 1) / unit < num_threads()) unit /= 2;
    count = (batch + unit - 1) / unit;
  }
  int parts() const { return parallel_parts(count, 1); }
  Range images(std::int64_t begin, std::int64_t end) const { return {begin * unit, std::min(batch, end * unit)}; }
};

std::shared_ptr<Storage> packed_weights(const SimdKernels& kernels, const ConvShape& shape, const Tensor& w,
                                        std::int64_t pass) {
  // The layout depends on the weight's own shape alone, which the address and the size do not tell.
  const std::int64_t format = (w.dim(1) << 40) + (w.dim(2) << 20) + w.dim(3);
  const auto pack = pass == kForward ? kernels.conv_pack_forward : kernels.conv_pack_backward;
  return PackedWeights::local().get(
      w, {kSimdKernel, pass, format}, kernels.conv_packed_floats(shape) * sizeof(float),
      [&](void* destination) { pack(shape, w.host_data<float>(), static_cast<float*>(destination)); });
}

void forward(const ConvForwardCall& call, const Pooling& pooling) {
  const SimdKernels& kernels = simd::simd_kernels();
  const ConvShape shape = shape_of(call.sizes);
  const auto packed = packed_weights(kernels, shape, call.w, kForward);
  const ImageUnits units(call.sizes.batch, kernels.image_block);
  const PartScratch scratch(units.parts(), kernels.conv_scratch_floats(shape));
  Tensor code = pooling.code;
  const simd::ConvForward args{.x = call.x.host_data<float>(),
                               .packed_w = static_cast<const float*>(packed->data()),
                               .bias = call.bias.defined() ? call.bias.host_data<float>() : nullptr,
                               .relu = call.relu,
                               .pool = pooling.kind,
                               .y = call.y.mutable_host_data<float>(),
                               .pool_code = code.defined() ? code.mutable_host_data<std::uint8_t>() : nullptr};
  parallel_for(units.count, 1, [&](std::int64_t begin, std::int64_t end, int part) {
    simd::ConvForward mine = args;
    mine.scratch = scratch.of(part);
    kernels.conv_forward(shape, mine, units.images(begin, end));
  });
}

void backward_data(const ConvBackwardDataCall& call, const Pooling& pooling, WriteMode mode) {
  const SimdKernels& kernels = simd::simd_kernels();
  const ConvShape shape = shape_of(call.sizes);
  const auto packed = packed_weights(kernels, shape, call.w, kBackwardData);
  const ImageUnits units(call.sizes.batch, kernels.image_block);
  const PartScratch scratch(units.parts(), kernels.conv_scratch_floats(shape));
  const simd::ConvBackwardData args{.dy = call.dy.host_data<float>(),
                                    .pool = pooling.kind,
                                    .pool_code = pooling.code_data(),
                                    .packed_w = static_cast<const float*>(packed->data()),
                                    .relu_mask = call.relu_mask.defined() ? call.relu_mask.host_data<float>() : nullptr,
                                    .accumulate = mode == WriteMode::add,
                                    .dx = call.dx.mutable_host_data<float>()};
  parallel_for(units.count, 1, [&](std::int64_t begin, std::int64_t end, int part) {
    simd::ConvBackwardData mine = args;
    mine.scratch = scratch.of(part);
    kernels.conv_backward_data(shape, mine, units.images(begin, end));
  });
}

// Each thread sums its images, then the parts are added in order: the bits depend on the number of threads.
void backward_weight(const ConvBackwardWeightCall& call, const Pooling& pooling) {
  const SimdKernels& kernels = simd::simd_kernels();
  const ConvShape shape = shape_of(call.sizes);
  const ImageUnits units(call.sizes.batch, kernels.image_block);
  const int parts = units.parts();
  const std::size_t partial_floats = kernels.conv_partial_floats(shape);
  const PartScratch scratch(parts, kernels.conv_scratch_floats(shape));
  const auto partials =
      Storage::allocate(static_cast<std::size_t>(parts) * partial_floats * sizeof(float), Device::cpu());
  auto* const partial = static_cast<float*>(partials->data());
  const float* const x = call.x.host_data<float>();
  const float* const dy = call.dy.host_data<float>();
  const std::uint8_t* const code = pooling.code_data();
  parallel_for(units.count, 1, [&](std::int64_t begin, std::int64_t end, int part) {
    kernels.conv_backward_weight(shape,
                                 {.x = x,
                                  .dy = dy,
                                  .pool = pooling.kind,
                                  .pool_code = code,
                                  .partial = partial + static_cast<std::size_t>(part) * partial_floats,
                                  .scratch = scratch.of(part)},
                                 units.images(begin, end));
  });
  kernels.conv_reduce_partials(shape, {.partials = partial,
                                       .count = parts,
                                       .dw = call.dw.mutable_host_data<float>(),
                                       .db = call.db == nullptr ? nullptr : call.db->mutable_host_data<float>(),
                                       .accumulate = call.mode == WriteMode::add});
}

}  // namespace

bool conv_simd_supports(const ConvSizes& s, DType dtype) {
  const Conv2dParams& p = s.params;
  return dtype == DType::f32 && p.groups == 1 && p.dilation_h == 1 && p.dilation_w == 1 && s.macs() != 0;
}

void conv_forward_simd(const ConvForwardCall& call) { forward(call, {}); }
void conv_backward_data_simd(const ConvBackwardDataCall& call) { backward_data(call, {}, WriteMode::store); }
void conv_backward_weight_simd(const ConvBackwardWeightCall& call) { backward_weight(call, {}); }

void conv_pool_forward_simd(const ConvForwardCall& call, PoolKind pool, const Tensor& code) {
  forward(call, pooling_of(pool, code));
}

void conv_pool_backward_data_simd(const ConvBackwardDataCall& call, PoolKind pool, const Tensor& code, WriteMode mode) {
  backward_data(call, pooling_of(pool, code), mode);
}

void conv_pool_backward_weight_simd(const ConvBackwardWeightCall& call, PoolKind pool, const Tensor& code) {
  backward_weight(call, pooling_of(pool, code));
}

}  // namespace heddle::cpu
