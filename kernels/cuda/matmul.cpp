// Matrix products of the CUDA backend.
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/int_size.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {

void CudaBackend::matmul(const Tensor& a, const Tensor& b, const MatmulParams& params, Tensor& y, WriteMode mode) {
  if (y.numel() == 0) return;
  const std::int64_t batch = a.shape().numel_between(0, a.rank() - 2);
  const std::int64_t rows = y.dim(-2), columns = y.dim(-1), depth = a.dim(params.transpose_a ? -2 : -1);
  for (const std::int64_t size : {rows, columns, depth}) int_size("matmul", size);
  visit_floats("matmul", a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    product(GemmCall<T>{.a = data_of<T>(a),
                        .b = data_of<T>(b),
                        .y = data_of<T>(y),
                        .batch = batch,
                        .rows = rows,
                        .columns = columns,
                        .depth = depth,
                        .transpose_a = params.transpose_a,
                        .transpose_b = params.transpose_b,
                        .add = mode == WriteMode::add},
            {*gemm_, *tickets_, device_, stream()});
  });
}

}  // namespace heddle::cuda
