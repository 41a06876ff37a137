// Matrix products and linear layers: picks an implementation for each call. f32 linear layers run on the own kernels,
// which tests/bench/linear_bench shows level with oneDNN or ahead (bias, ReLU and mask are fused); the rest on oneDNN.
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/masked_gradient.h"
#include "engine/cpu/matmul_list.h"

namespace heddle::cpu {
namespace {

// False if the dtype has no kernel of its own.
bool run_gemm(const char* op, const GemmCall& call) {
  const DType dtype = call.a.dtype();
  if (gemm_dnnl_supports(call.sizes, dtype, call.bias.defined(), call.mode)) {
    gemm_dnnl(call);
    return true;
  }
  if (dtype == DType::bf16) return false;
  if (dtype != DType::f32 && dtype != DType::f64) throw NotSupported(join_text(op, ": no ", dtype, " on the CPU"));
  gemm_plain(call);
  return true;
}

}  // namespace

Tensor CpuBackend::widen(const Tensor& x) {
  if (!x.defined()) return x;
  Tensor wide = Tensor::empty(x.shape());
  cast(x, wide);
  return wide;
}

void CpuBackend::matmul(const Tensor& a, const Tensor& b, const MatmulParams& params, Tensor& y, WriteMode mode) {
  if (y.numel() == 0) return;
  const int rank = a.rank();
  const GemmSizes sizes{.batch = a.shape().numel_between(0, rank - 2),
                        .m = y.dim(-2),
                        .n = y.dim(-1),
                        .k = a.dim(params.transpose_a ? -2 : -1),
                        .transpose_a = params.transpose_a ? 1 : 0,
                        .transpose_b = params.transpose_b ? 1 : 0};
  if (run_gemm("matmul", {sizes, a, b, Tensor(), y, mode})) return;
  Tensor wide_y = mode == WriteMode::add ? widen(y) : Tensor::empty(y.shape());
  matmul(widen(a), widen(b), params, wide_y, mode);
  cast(wide_y, y);
}

void CpuBackend::linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, Tensor& y) {
  if (y.numel() == 0) return;
  if (linear_simd_supports(x, w)) return linear_forward_simd(x, w, bias, relu, y);
  const GemmSizes sizes{.m = x.dim(0), .n = w.dim(0), .k = w.dim(1), .transpose_b = 1};
  if (run_gemm("linear_forward", {sizes, x, w, bias, y, WriteMode::store})) {
    if (relu) relu_in_place(y);
    return;
  }
  Tensor wide_y = Tensor::empty(y.shape());
  linear_forward(widen(x), widen(w), widen(bias), relu, wide_y);
  cast(wide_y, y);
}

// dx = dy w
void CpuBackend::linear_backward_data(const Tensor& dy, const Tensor& w, const Tensor& relu_mask, Tensor& dx,
                                      WriteMode mode) {
  if (dx.numel() == 0) return;
  const GemmSizes sizes{.m = dy.dim(0), .n = w.dim(1), .k = w.dim(0)};
  if (linear_simd_supports(dy, w)) {
    Tensor fresh = mode == WriteMode::add ? Tensor::empty_like(dx) : dx;
    linear_backward_data_simd(dy, w, relu_mask, fresh);
    if (mode == WriteMode::add) add_gradient(fresh, Tensor(), dx);
    return;
  }
  const bool aside = mode == WriteMode::add && relu_mask.defined();
  Tensor fresh = aside ? Tensor::empty_like(dx) : dx;
  if (run_gemm("linear_backward_data", {sizes, dy, w, Tensor(), fresh, aside ? WriteMode::store : mode})) {
    if (aside) {
      add_gradient(fresh, relu_mask, dx);
    } else if (relu_mask.defined()) {
      apply_relu_mask(relu_mask, dx);
    }
    return;
  }
  Tensor wide_dx = mode == WriteMode::add ? widen(dx) : Tensor::empty(dx.shape());
  linear_backward_data(widen(dy), widen(w), widen(relu_mask), wide_dx, mode);
  cast(wide_dx, dx);
}

// dw = dy^T x, db = column sums of dy
void CpuBackend::linear_backward_weight(const Tensor& x, const Tensor& dy, Tensor& dw, Tensor* db, WriteMode mode) {
  if (db != nullptr) column_sums(dy, *db, mode);
  if (dw.numel() == 0) return;
  if (linear_simd_supports(x, dw)) return linear_backward_weight_simd(x, dy, dw, mode);
  const GemmSizes sizes{.m = dw.dim(0), .n = dw.dim(1), .k = x.dim(0), .transpose_a = 1};
  if (run_gemm("linear_backward_weight", {sizes, dy, x, Tensor(), dw, mode})) return;
  Tensor wide_dw = mode == WriteMode::add ? widen(dw) : Tensor::empty(dw.shape());
  linear_backward_weight(widen(x), widen(dy), wide_dw, nullptr, mode);
  cast(wide_dw, dw);
}

}  // namespace heddle::cpu
