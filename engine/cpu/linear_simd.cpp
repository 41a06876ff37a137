// Linear layers by the own SIMD kernels: threads and scratch around engine/cpu/simd.
#include <algorithm>

#include "engine/core/parallel.h"
#include "engine/cpu/matmul_list.h"
#include "engine/cpu/simd/simd_kernels.h"

namespace heddle::cpu {
namespace {

using simd::LinearShape;
using simd::SimdKernels;

// Rows of the batch, or columns of the weight gradient, that threads share in units of.
constexpr std::int64_t kUnit = 16;
// Multiply-adds that are worth a thread: about a microsecond.
constexpr std::int64_t kGrainMacs = 1 << 16;

std::shared_ptr<Storage> scratch_for(int parts, std::size_t floats) {
  return Storage::allocate(static_cast<std::size_t>(parts) * floats * sizeof(float), Device::cpu());
}

// Calls run(range, scratch) on the parts of [0, n).
template <class Run>
void share(const SimdKernels& kernels, const LinearShape& shape, std::int64_t n, Run&& run) {
  const std::size_t floats = (kernels.linear_scratch_floats(shape) + 15) / 16 * 16;
  const std::int64_t units = (n + kUnit - 1) / kUnit;
  const std::int64_t unit_macs =
      std::max<std::int64_t>(1, shape.rows * shape.in * shape.out / std::max<std::int64_t>(1, units));
  const std::int64_t grain = (kGrainMacs + unit_macs - 1) / unit_macs;
  const auto scratch = scratch_for(std::max(1, parallel_parts(units, grain)), floats);
  parallel_for(units, grain, [&](std::int64_t begin, std::int64_t end, int part) {
    run(simd::Range{begin * kUnit, std::min(n, end * kUnit)},
        static_cast<float*>(scratch->data()) + static_cast<std::size_t>(part) * floats);
  });
}

const float* floats_or_null(const Tensor& x) { return x.defined() ? x.host_data<float>() : nullptr; }

}  // namespace

bool linear_simd_supports(const Tensor& x, const Tensor& w) {
  return x.dtype() == DType::f32 && x.numel() != 0 && w.numel() != 0;
}

void linear_forward_simd(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, Tensor& y) {
  const SimdKernels& kernels = simd::simd_kernels();
  const LinearShape shape{.rows = x.dim(0), .in = w.dim(1), .out = w.dim(0)};
  const simd::LinearForward args{.x = x.host_data<float>(),
                                 .w = w.host_data<float>(),
                                 .bias = floats_or_null(bias),
                                 .relu = relu,
                                 .y = y.mutable_host_data<float>()};
  share(kernels, shape, shape.rows, [&](simd::Range rows, float* scratch) {
    simd::LinearForward mine = args;
    mine.scratch = scratch;
    kernels.linear_forward(shape, mine, rows);
  });
}

void linear_backward_data_simd(const Tensor& dy, const Tensor& w, const Tensor& relu_mask, Tensor& dx) {
  const SimdKernels& kernels = simd::simd_kernels();
  const LinearShape shape{.rows = dy.dim(0), .in = w.dim(1), .out = w.dim(0)};
  const simd::LinearBackwardData args{.dy = dy.host_data<float>(),
                                      .w = w.host_data<float>(),
                                      .relu_mask = floats_or_null(relu_mask),
                                      .dx = dx.mutable_host_data<float>()};
  share(kernels, shape, shape.rows, [&](simd::Range rows, float* scratch) {
    simd::LinearBackwardData mine = args;
    mine.scratch = scratch;
    kernels.linear_backward_data(shape, mine, rows);
  });
}

void linear_backward_weight_simd(const Tensor& x, const Tensor& dy, Tensor& dw, WriteMode mode) {
  const SimdKernels& kernels = simd::simd_kernels();
  const LinearShape shape{.rows = x.dim(0), .in = dw.dim(1), .out = dw.dim(0)};
  const simd::LinearBackwardWeight args{.x = x.host_data<float>(),
                                        .dy = dy.host_data<float>(),
                                        .dw = dw.mutable_host_data<float>(),
                                        .accumulate = mode == WriteMode::add};
  share(kernels, shape, shape.in, [&](simd::Range columns, float* scratch) {
    simd::LinearBackwardWeight mine = args;
    mine.scratch = scratch;
    kernels.linear_backward_weight(shape, mine, columns);
  });
}

}  // namespace heddle::cpu
