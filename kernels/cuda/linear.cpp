// Linear layers of the CUDA backend.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/int_size.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {
namespace {

void check_sizes(const char* op, const Tensor& x, const Tensor& w) {
  for (const std::int64_t size : {x.dim(0), w.dim(0), w.dim(1)}) int_size(op, size);
}

}  // namespace

void CudaBackend::linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, Tensor& y) {
  if (y.numel() == 0) return;
  check_sizes("linear_forward", x, w);
  visit_floats("linear_forward", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    product(GemmCall<T>{.a = data_of<T>(x),
                        .b = data_of<T>(w),
                        .y = data_of<T>(y),
                        .rows = x.dim(0),
                        .columns = w.dim(0),
                        .depth = w.dim(1),
                        .transpose_b = true,
                        .bias = data_of<T>(bias),
                        .relu = relu},
            {*gemm_, *tickets_, device_, stream()});
  });
}

// dx = dy w
void CudaBackend::linear_backward_data(const Tensor& dy, const Tensor& w, const Tensor& relu_mask, Tensor& dx,
                                       WriteMode mode) {
  if (dx.numel() == 0) return;
  check_sizes("linear_backward_data", dy, w);
  if (relu_mask.defined() && !own_product_wins(1, dy.dim(0), w.dim(1), w.dim(0))) {
    Tensor fresh = Tensor::empty_like(dx);
    linear_backward_data(dy, w, Tensor(), fresh, WriteMode::store);
    return unary_backward(UnaryOp::relu, Tensor(), relu_mask, fresh, 0, 0, dx, mode);
  }
  visit_floats("linear_backward_data", dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    product(GemmCall<T>{.a = data_of<T>(dy),
                        .b = data_of<T>(w),
                        .y = data_of<T>(dx),
                        .rows = dy.dim(0),
                        .columns = w.dim(1),
                        .depth = w.dim(0),
                        .relu_mask = data_of<T>(relu_mask),
                        .add = mode == WriteMode::add},
            {*gemm_, *tickets_, device_, stream()});
  });
}

// dw = dy^T x, db = column sums of dy
void CudaBackend::linear_backward_weight(const Tensor& x, const Tensor& dy, Tensor& dw, Tensor* db, WriteMode mode) {
  if (dw.numel() == 0) {
    if (db != nullptr) reduce(ReduceKind::sum, dy, 1u, *db, mode);
    return;
  }
  check_sizes("linear_backward_weight", x, dw);
  if (db != nullptr && mode == WriteMode::add && !own_product_wins(1, dw.dim(0), dw.dim(1), x.dim(0))) {
    reduce(ReduceKind::sum, dy, 1u, *db, mode);
    return linear_backward_weight(x, dy, dw, nullptr, mode);
  }
  visit_floats("linear_backward_weight", x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    product(GemmCall<T>{.a = data_of<T>(dy),
                        .b = data_of<T>(x),
                        .y = data_of<T>(dw),
                        .rows = dw.dim(0),
                        .columns = dw.dim(1),
                        .depth = x.dim(0),
                        .transpose_a = true,
                        .row_sums = db == nullptr ? nullptr : data_of<T>(*db),
                        .add = mode == WriteMode::add},
            {*gemm_, *tickets_, device_, stream()});
  });
}

}  // namespace heddle::cuda
