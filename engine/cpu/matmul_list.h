// Matrix products of the CPU backend: what matmul.cpp chooses from.
#pragma once

#include <cstdint>

#include "engine/backend/op_params.h"
#include "engine/core/dtype.h"
#include "engine/tensor/tensor.h"

namespace heddle::cpu {

// y[i] (M,N) = op(a[i]) op(b[i]) for i < batch, op(a[i]) (M,K), op(b[i]) (K,N). Plain data, a part of cache keys.
struct GemmSizes {
  std::int64_t batch = 1;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t transpose_a = 0;  // a[i] is stored as (K,M)
  std::int64_t transpose_b = 0;  // b[i] is stored as (N,K)
};

struct GemmCall {
  GemmSizes sizes;
  const Tensor& a;
  const Tensor& b;
  const Tensor& bias;  // (N) or undefined; batch 1 only
  Tensor& y;
  WriteMode mode;
};

// matmul_dnnl.cpp. The supports function makes and keeps the primitive.
bool gemm_dnnl_supports(const GemmSizes& sizes, DType dtype, bool bias, WriteMode mode);
void gemm_dnnl(const GemmCall& call);

// linear_simd.cpp: f32, nothing empty. See Backend for shapes; the data gradient is stored.
bool linear_simd_supports(const Tensor& x, const Tensor& w);
void linear_forward_simd(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, Tensor& y);
void linear_backward_data_simd(const Tensor& dy, const Tensor& w, const Tensor& relu_mask, Tensor& dx);
void linear_backward_weight_simd(const Tensor& x, const Tensor& dy, Tensor& dw, WriteMode mode);

// matmul_plain.cpp: loops for f32 and f64, sums in double. Takes everything, zero sizes too.
void gemm_plain(const GemmCall& call);
// db (=|+=) sum over rows of dy (rows,columns); f32, f64 or bf16. Threads share columns, so their number changes
// nothing.
void column_sums(const Tensor& dy, Tensor& db, WriteMode mode);

}  // namespace heddle::cpu
