// The matrix product of the simulated cuBLAS and cuBLASLt: one description, its memory ranges and its computation.
// Used by cublas.cpp and cublaslt*.cpp, which check arguments and give status codes; this file only computes.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstdint>
#include <optional>

#include "tests/cudasim/numbers.h"

namespace cudasim {

// A matrix (or a batch of them) in device memory as it is stored, before any transposition.
struct StoredMatrix {
  const void* data = nullptr;
  ElementType type = ElementType::float32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  // Elements from one column to the next, or from one row to the next if row_major.
  std::int64_t leading_dimension = 0;
  bool row_major = false;
  // Elements from one matrix of the batch to the next; 0 repeats the same one.
  std::int64_t batch_stride = 0;
};

// A factor that the host gave, or a float on the device that is read when the operation runs.
struct Factor {
  double value = 1;
  const float* device = nullptr;
};

// What happens to the product before it is stored. A bias has one element for each row of d.
struct GemmEpilogue {
  bool add_bias = false;
  bool relu = false;
  // With relu: write bit row + column * mask_leading_dimension, 1 where the value before the ReLU is positive.
  bool write_mask = false;
  // Multiply by the mask's bits (the gradient of a ReLU).
  bool apply_mask = false;
  // Write the sums along a row of d, of op(A), or along a column of op(B) to `bias`.
  enum class BiasGradient { none, of_d, of_a, of_b } bias_gradient = BiasGradient::none;
  const void* bias = nullptr;
  ElementType bias_type = ElementType::float32;
  std::int64_t bias_batch_stride = 0;
  const void* mask = nullptr;
  std::int64_t mask_leading_dimension = 0;
  std::int64_t mask_batch_stride = 0;
};

// d = epilogue(alpha * op(a) * op(b) + beta * c); c is not read where beta is 0 and may be d itself.
struct GemmProblem {
  StoredMatrix a, b, c, d;
  bool transpose_a = false;
  bool transpose_b = false;
  Factor alpha;
  Factor beta;
  std::int64_t batch_count = 1;
  // Round both inputs to TF32 first.
  bool tf32 = false;
  GemmEpilogue epilogue;
  // Filled with NaN before the computation, so that a program which keeps something else there shows.
  void* workspace = nullptr;
  std::size_t workspace_nbytes = 0;
};

// Element type of a CUDA data type, if the simulated libraries compute with it: float32, bfloat16 and float16.
std::optional<ElementType> gemm_element_type(cudaDataType_t type);

// Queues the product as one library call. Errors as enqueue().
cudaError_t enqueue_gemm(cudaStream_t stream, const char* name, const GemmProblem& problem);

}  // namespace cudasim
