// Matrix products and linear layers: picks an implementation for each call. f32 linear layers run on the own kernels,
// which tests/bench/linear_bench shows level with oneDNN or ahead (bias, ReLU and mask are fused); the rest on oneDNN.
// kernel_choice() can turn that around.
#include "engine/backend/kernel_choice.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/masked_gradient.h"
#include "engine/cpu/matmul_list.h"

namespace heddle::cpu {
namespace {

bool dnnl_supports(const GemmCall& call) {
  return gemm_dnnl_supports(call.sizes, call.a.dtype(), call.bias.defined(), call.mode);
}
bool plain_supports(const GemmCall& call) { return call.a.dtype() == DType::f32 || call.a.dtype() == DType::f64; }

struct GemmRow {
  const char* name;
  KernelSource source;
  bool (*supports)(const GemmCall& call);
  void (*run)(const GemmCall& call);
};
constexpr GemmRow kGemmRows[] = {
    {"dnnl", KernelSource::vendor, dnnl_supports, gemm_dnnl},
    {"plain", KernelSource::own, plain_supports, gemm_plain},
};

// False if the dtype has no kernel of its own.
bool run_gemm(const char* op, const GemmCall& call) {
  const KernelChoice choice = kernel_choice();
  for (int round = 0; round < 2; ++round) {
    for (const GemmRow& row : kGemmRows) {
      if (!is_tried(row.source, choice, round) || !row.supports(call)) continue;
      note_kernel({row.name, row.source});
      row.run(call);
      return true;
    }
  }
  const DType dtype = call.a.dtype();
  if (dtype != DType::bf16) throw NotSupported(join_text(op, ": no ", dtype, " on the CPU"));
  return false;
}

// Whether a linear layer with these operands and sizes runs on the own kernels.
bool runs_simd(const Tensor& x, const Tensor& w, const GemmSizes& sizes, bool bias, WriteMode mode) {
  if (!linear_simd_supports(x, w)) return false;
  if (kernel_choice() == KernelChoice::vendor && gemm_dnnl_supports(sizes, x.dtype(), bias, mode)) return false;
  note_kernel({"simd", KernelSource::own});
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
  const GemmSizes sizes{.m = x.dim(0), .n = w.dim(0), .k = w.dim(1), .transpose_b = 1};
  if (runs_simd(x, w, sizes, bias.defined(), WriteMode::store)) return linear_forward_simd(x, w, bias, relu, y);
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
  const bool aside = mode == WriteMode::add && relu_mask.defined();
  const WriteMode gemm_mode = aside ? WriteMode::store : mode;
  if (runs_simd(dy, w, sizes, false, gemm_mode)) {
    Tensor fresh = mode == WriteMode::add ? Tensor::empty_like(dx) : dx;
    linear_backward_data_simd(dy, w, relu_mask, fresh);
    if (mode == WriteMode::add) add_gradient(fresh, Tensor(), dx);
    return;
  }
  Tensor fresh = aside ? Tensor::empty_like(dx) : dx;
  if (run_gemm("linear_backward_data", {sizes, dy, w, Tensor(), fresh, gemm_mode})) {
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
  const GemmSizes sizes{.m = dw.dim(0), .n = dw.dim(1), .k = x.dim(0), .transpose_a = 1};
  if (runs_simd(x, dw, sizes, false, mode)) return linear_backward_weight_simd(x, dy, dw, mode);
  if (run_gemm("linear_backward_weight", {sizes, dy, x, Tensor(), dw, mode})) return;
  Tensor wide_dw = mode == WriteMode::add ? widen(dw) : Tensor::empty(dw.shape());
  linear_backward_weight(widen(x), widen(dy), wide_dw, nullptr, mode);
  cast(wide_dw, dw);
}

}  // namespace heddle::cpu
