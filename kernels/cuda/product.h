// Who computes a matrix product: cuBLASLt or the own kernel. Used by linear.cpp and matmul.cpp.
#pragma once

#include "kernels/cuda/cublas_gemm.h"
#include "kernels/cuda/split_tickets.h"
#include "kernels/launch/matrix_kernels.h"

namespace heddle::cuda {

// What a product runs on.
struct ProductPlace {
  CublasGemm& cublas;
  SplitTickets& tickets;
  Device device;
  cudaStream_t stream;
};

// Whether the own kernel is to be taken for a product of these sizes where cuBLASLt could do it too.
bool own_product_wins(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::int64_t depth);

// Queues the product on the one or the other. What cuBLASLt has no form of (a mask, row sums that are added to) runs on
// the own kernel.
template <class T>
void product(const GemmCall<T>& call, const ProductPlace& place);

}  // namespace heddle::cuda
