// The simulated cuBLAS: handles and the plain matrix products. Checks arguments as cuBLAS documents it and leaves the
// computation to cublas_gemm. Tests and product code call it through <cublas_v2.h>.
#include <cublas_v2.h>

#include <algorithm>

#include "tests/cudasim/cublas_gemm.h"
#include "tests/cudasim/internal.h"
#include "tests/cudasim/library_face.h"

// The handle that cuBLAS leaves opaque.
struct cublasContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  void* workspace = nullptr;
  std::size_t workspace_nbytes = 0;
};

namespace {

using namespace cudasim;

constexpr const char* kHandle = "cuBLAS handle";

// First in every function with a handle: an injected failure, or NOT_INITIALIZED for what is no handle or belongs to
// another device than the current one.
cublasStatus_t enter(const char* function, cublasHandle_t handle) {
  if (const int status = injected_library(function)) return static_cast<cublasStatus_t>(status);
  if (handle == nullptr || !handle_alive(kHandle, handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  return handle->device == current_device() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

bool is_operation(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

// The arguments that the plain products share, under cuBLAS's names.
struct PlainGemm {
  cublasOperation_t transa = CUBLAS_OP_N;
  cublasOperation_t transb = CUBLAS_OP_N;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const void* alpha = nullptr;
  const void* beta = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  cudaDataType a_type = CUDA_R_32F;
  cudaDataType b_type = CUDA_R_32F;
  cudaDataType c_type = CUDA_R_32F;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;
  std::int64_t stride_c = 0;
  std::int64_t batch_count = 1;
  cublasComputeType_t compute_type = CUBLAS_COMPUTE_32F;
};

cublasStatus_t check_shapes(const PlainGemm& gemm) {
  if (!is_operation(gemm.transa) || !is_operation(gemm.transb)) return CUBLAS_STATUS_INVALID_VALUE;
  if (gemm.m < 0 || gemm.n < 0 || gemm.k < 0 || gemm.batch_count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const std::int64_t one = 1;
  if (gemm.lda < std::max(one, gemm.transa == CUBLAS_OP_N ? gemm.m : gemm.k)) return CUBLAS_STATUS_INVALID_VALUE;
  if (gemm.ldb < std::max(one, gemm.transb == CUBLAS_OP_N ? gemm.k : gemm.n)) return CUBLAS_STATUS_INVALID_VALUE;
  if (gemm.ldc < std::max(one, gemm.m)) return CUBLAS_STATUS_INVALID_VALUE;
  // Matrices of a batch that is written must not overlap.
  if (gemm.batch_count > 1 && gemm.stride_c < gemm.ldc * gemm.n) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_types(const PlainGemm& gemm) {
  if (gemm.compute_type != CUBLAS_COMPUTE_32F && gemm.compute_type != CUBLAS_COMPUTE_32F_PEDANTIC &&
      gemm.compute_type != CUBLAS_COMPUTE_32F_FAST_TF32) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto type = gemm_element_type(gemm.a_type);
  if (!type || gemm.a_type != gemm.b_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (gemm.c_type != gemm.a_type && gemm.c_type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (gemm.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32 && type != ElementType::float32) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t run(const char* name, cublasHandle_t handle, const PlainGemm& gemm) {
  if (const cublasStatus_t status = check_shapes(gemm)) return status;
  if (const cublasStatus_t status = check_types(gemm)) return status;
  if (gemm.alpha == nullptr || gemm.beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch_count == 0) return CUBLAS_STATUS_SUCCESS;
  if (gemm.c == nullptr || (gemm.k > 0 && (gemm.a == nullptr || gemm.b == nullptr))) return CUBLAS_STATUS_INVALID_VALUE;
  const ElementType input = *gemm_element_type(gemm.a_type);
  const bool transpose_a = gemm.transa != CUBLAS_OP_N, transpose_b = gemm.transb != CUBLAS_OP_N;
  GemmProblem problem{.a = {.data = gemm.a,
                            .type = input,
                            .rows = transpose_a ? gemm.k : gemm.m,
                            .columns = transpose_a ? gemm.m : gemm.k,
                            .leading_dimension = gemm.lda,
                            .batch_stride = gemm.stride_a},
                      .b = {.data = gemm.b,
                            .type = input,
                            .rows = transpose_b ? gemm.n : gemm.k,
                            .columns = transpose_b ? gemm.k : gemm.n,
                            .leading_dimension = gemm.ldb,
                            .batch_stride = gemm.stride_b},
                      .d = {.data = gemm.c,
                            .type = *gemm_element_type(gemm.c_type),
                            .rows = gemm.m,
                            .columns = gemm.n,
                            .leading_dimension = gemm.ldc,
                            .batch_stride = gemm.stride_c},
                      .transpose_a = transpose_a,
                      .transpose_b = transpose_b,
                      .batch_count = gemm.batch_count,
                      .workspace = handle->workspace,
                      .workspace_nbytes = handle->workspace_nbytes};
  problem.c = problem.d;
  problem.tf32 = input == ElementType::float32 &&
                 (gemm.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                  (gemm.compute_type == CUBLAS_COMPUTE_32F && handle->math_mode == CUBLAS_TF32_TENSOR_OP_MATH));
  const auto* alpha = static_cast<const float*>(gemm.alpha);
  const auto* beta = static_cast<const float*>(gemm.beta);
  if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    problem.alpha.device = alpha;
    problem.beta.device = beta;
  } else {
    problem.alpha.value = *alpha;
    problem.beta.value = *beta;
  }
  return enqueue_gemm(handle->stream, name, problem) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

extern "C" {

CUDASIM_API cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  const Lock lock;
  if (const int status = injected_library("cublasCreate")) return static_cast<cublasStatus_t>(status);
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!device_is_usable()) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext{.device = current_device()};
  handle_created(kHandle, *handle);
  return CUBLAS_STATUS_SUCCESS;
}

CUDASIM_API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  const Lock lock;
  const int status = injected_library("cublasDestroy");
  if (handle == nullptr || !handle_destroyed(kHandle, handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return static_cast<cublasStatus_t>(status);
}

CUDASIM_API cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasGetVersion", handle)) return status;
  if (version == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

// As in cuBLAS, this also gives up a workspace that the caller has set.
CUDASIM_API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasSetStream", handle)) return status;
  if (device_of(stream) != handle->device) return CUBLAS_STATUS_INVALID_VALUE;
  handle->stream = stream;
  handle->workspace = nullptr;
  handle->workspace_nbytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}

CUDASIM_API cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasGetStream", handle)) return status;
  if (stream == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

CUDASIM_API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t nbytes) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasSetWorkspace", handle)) return status;
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace == nullptr && nbytes != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (nbytes != 0 && !is_reachable(workspace, nbytes)) return CUBLAS_STATUS_INVALID_VALUE;
  handle->workspace = workspace;
  handle->workspace_nbytes = nbytes;
  return CUBLAS_STATUS_SUCCESS;
}

CUDASIM_API cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasSetPointerMode", handle)) return status;
  if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) return CUBLAS_STATUS_INVALID_VALUE;
  handle->pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

CUDASIM_API cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasSetMathMode", handle)) return status;
  const int base = static_cast<int>(mode) & ~static_cast<int>(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  if (base != CUBLAS_DEFAULT_MATH && base != CUBLAS_PEDANTIC_MATH && base != CUBLAS_TF32_TENSOR_OP_MATH) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  handle->math_mode = static_cast<cublasMath_t>(base);
  return CUBLAS_STATUS_SUCCESS;
}

CUDASIM_API cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const float* alpha, const float* a, int lda,
                                          const float* b, int ldb, const float* beta, float* c, int ldc) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasSgemm", handle)) return status;
  return run("cublasSgemm", handle,
             {.transa = transa,
              .transb = transb,
              .m = m,
              .n = n,
              .k = k,
              .alpha = alpha,
              .beta = beta,
              .a = a,
              .b = b,
              .c = c,
              .lda = lda,
              .ldb = ldb,
              .ldc = ldc});
}

CUDASIM_API cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                        int m, int n, int k, const void* alpha, const void* a, cudaDataType a_type,
                                        int lda, const void* b, cudaDataType b_type, int ldb, const void* beta, void* c,
                                        cudaDataType c_type, int ldc, cublasComputeType_t compute_type,
                                        cublasGemmAlgo_t algo) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasGemmEx", handle)) return status;
  if (algo != CUBLAS_GEMM_DEFAULT && algo != CUBLAS_GEMM_DEFAULT_TENSOR_OP) return CUBLAS_STATUS_INVALID_VALUE;
  return run("cublasGemmEx", handle,
             {.transa = transa,
              .transb = transb,
              .m = m,
              .n = n,
              .k = k,
              .alpha = alpha,
              .beta = beta,
              .a = a,
              .b = b,
              .c = c,
              .a_type = a_type,
              .b_type = b_type,
              .c_type = c_type,
              .lda = lda,
              .ldb = ldb,
              .ldc = ldc,
              .compute_type = compute_type});
}

CUDASIM_API cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                                      cublasOperation_t transb, int m, int n, int k, const void* alpha,
                                                      const void* a, cudaDataType a_type, int lda, long long stride_a,
                                                      const void* b, cudaDataType b_type, int ldb, long long stride_b,
                                                      const void* beta, void* c, cudaDataType c_type, int ldc,
                                                      long long stride_c, int batch_count,
                                                      cublasComputeType_t compute_type, cublasGemmAlgo_t algo) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasGemmStridedBatchedEx", handle)) return status;
  if (algo != CUBLAS_GEMM_DEFAULT && algo != CUBLAS_GEMM_DEFAULT_TENSOR_OP) return CUBLAS_STATUS_INVALID_VALUE;
  return run("cublasGemmStridedBatchedEx", handle,
             {.transa = transa,
              .transb = transb,
              .m = m,
              .n = n,
              .k = k,
              .alpha = alpha,
              .beta = beta,
              .a = a,
              .b = b,
              .c = c,
              .a_type = a_type,
              .b_type = b_type,
              .c_type = c_type,
              .lda = lda,
              .ldb = ldb,
              .ldc = ldc,
              .stride_a = stride_a,
              .stride_b = stride_b,
              .stride_c = stride_c,
              .batch_count = batch_count,
              .compute_type = compute_type});
}

CUDASIM_API const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

CUDASIM_API const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

}  // extern "C"
