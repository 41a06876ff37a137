// The descriptors of the simulated cuBLASLt. Used by cublaslt.cpp; cublaslt_descriptors.cpp makes, fills and reads
// them.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace cudasim {

struct MatmulDescriptor {
  cublasComputeType_t compute_type = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale_type = CUDA_R_32F;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::int32_t transpose_c = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int64_t bias_batch_stride = 0;
  // -1: the type of d.
  std::int32_t bias_type = -1;
  void* mask = nullptr;
  std::int64_t mask_leading_dimension = 0;
  std::int64_t mask_batch_stride = 0;
};

struct MatrixLayout {
  std::uint32_t type = CUDA_R_32F;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t leading_dimension = 0;
  std::int32_t batch_count = 1;
  std::int64_t batch_stride = 0;
};

struct MatmulPreference {
  std::uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  std::uint64_t max_workspace_nbytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  // Of a, b, c and d.
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};

// What a handle of a program stands for; nullptr if it is none, or has been destroyed. Call with the lock held.
MatmulDescriptor* find_descriptor(cublasLtMatmulDesc_t handle);
MatrixLayout* find_layout(cublasLtMatrixLayout_t handle);
MatmulPreference* find_preference(cublasLtMatmulPreference_t handle);

}  // namespace cudasim
