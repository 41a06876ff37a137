// The simulated cuBLASLt: the matrix product with an epilogue, and the heuristic that offers algorithms for it. Checks
// arguments as cuBLASLt documents it and leaves the computation to cublas_gemm.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/cudasim/cublas_gemm.h"
#include "tests/cudasim/cublaslt_descriptors.h"
#include "tests/cudasim/internal.h"
#include "tests/cudasim/library_face.h"

// The handle that cuBLASLt leaves opaque.
struct cublasLtContext {
  int device = 0;
};

namespace {

using namespace cudasim;

constexpr const char* kHandle = "cuBLASLt handle";

cublasStatus_t enter(const char* function, cublasLtHandle_t handle) {
  if (const int status = injected_library(function)) return static_cast<cublasStatus_t>(status);
  if (handle == nullptr || !handle_alive(kHandle, handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  return handle->device == current_device() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

// What an algorithm's opaque data hold.
struct Algorithm {
  std::uint64_t tag;
  std::uint64_t workspace_nbytes;
  // Alignment of every matrix that the algorithm needs.
  std::uint64_t alignment;
  // The problem it was made for: rows, columns and depth of the product.
  std::uint64_t m, n, k;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t kAlgorithmTag = 0x73696d756c617465;

// A checked problem: everything but the matrices' addresses.
struct Checked {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  GemmProblem problem;
  std::int64_t k = 0;
};
Checked refused(cublasStatus_t status) { return {.status = status, .problem = {}}; }

bool is_consistent(const MatrixLayout& layout) {
  const bool row_major = layout.order == CUBLASLT_ORDER_ROW;
  if (!row_major && layout.order != CUBLASLT_ORDER_COL) return false;
  const auto length = static_cast<std::int64_t>(row_major ? layout.columns : layout.rows);
  return layout.leading_dimension >= std::max<std::int64_t>(length, 1) && layout.batch_count >= 1;
}

StoredMatrix stored(const MatrixLayout& layout) {
  return {.type = gemm_element_type(static_cast<cudaDataType_t>(layout.type)).value_or(ElementType::float32),
          .rows = static_cast<std::int64_t>(layout.rows),
          .columns = static_cast<std::int64_t>(layout.columns),
          .leading_dimension = layout.leading_dimension,
          .row_major = layout.order == CUBLASLT_ORDER_ROW,
          .batch_stride = layout.batch_stride};
}

cublasStatus_t check_types(const MatmulDescriptor& descriptor, const MatrixLayout& a, const MatrixLayout& b,
                           const MatrixLayout& c, const MatrixLayout& d) {
  if (descriptor.compute_type != CUBLAS_COMPUTE_32F && descriptor.compute_type != CUBLAS_COMPUTE_32F_FAST_TF32) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (descriptor.scale_type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto type = gemm_element_type(static_cast<cudaDataType_t>(a.type));
  if (!type || a.type != b.type || c.type != d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d.type != a.type && d.type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (descriptor.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32 && type != ElementType::float32) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Translates the epilogue's number and parameters.
cublasStatus_t read_epilogue(const MatmulDescriptor& descriptor, const MatrixLayout& d, GemmEpilogue* epilogue) {
  using BiasGradient = GemmEpilogue::BiasGradient;
  switch (descriptor.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: break;
    case CUBLASLT_EPILOGUE_BIAS: epilogue->add_bias = true; break;
    case CUBLASLT_EPILOGUE_RELU: epilogue->relu = true; break;
    case CUBLASLT_EPILOGUE_RELU_BIAS: epilogue->relu = epilogue->add_bias = true; break;
    case CUBLASLT_EPILOGUE_RELU_AUX: epilogue->relu = epilogue->write_mask = true; break;
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS: epilogue->relu = epilogue->write_mask = epilogue->add_bias = true; break;
    case CUBLASLT_EPILOGUE_DRELU: epilogue->apply_mask = true; break;
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
      epilogue->apply_mask = true;
      epilogue->bias_gradient = BiasGradient::of_d;
      break;
    case CUBLASLT_EPILOGUE_BGRADA: epilogue->bias_gradient = BiasGradient::of_a; break;
    case CUBLASLT_EPILOGUE_BGRADB: epilogue->bias_gradient = BiasGradient::of_b; break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (descriptor.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
  // Biases and masks go along d's columns; this double takes no other form of them.
  if (d.order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto bias_type = gemm_element_type(static_cast<cudaDataType_t>(
      descriptor.bias_type == -1 ? static_cast<std::int32_t>(d.type) : descriptor.bias_type));
  if (!bias_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (static_cast<std::uint32_t>(descriptor.bias_type) != d.type && descriptor.bias_type != -1) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  epilogue->bias = descriptor.bias;
  epilogue->bias_type = *bias_type;
  epilogue->bias_batch_stride = descriptor.bias_batch_stride;
  if (epilogue->write_mask || epilogue->apply_mask) {
    if (descriptor.mask_leading_dimension % 128 != 0 || descriptor.mask_batch_stride % 128 != 0 ||
        descriptor.mask_leading_dimension < static_cast<std::int64_t>(d.rows)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    epilogue->mask = descriptor.mask;
    epilogue->mask_leading_dimension = descriptor.mask_leading_dimension;
    epilogue->mask_batch_stride = descriptor.mask_batch_stride;
  }
  return CUBLAS_STATUS_SUCCESS;
}

bool is_transposition(std::int32_t operation) { return operation == CUBLAS_OP_T || operation == CUBLAS_OP_C; }

Checked check(const MatmulDescriptor* descriptor, const MatrixLayout* a, const MatrixLayout* b, const MatrixLayout* c,
              const MatrixLayout* d) {
  if (descriptor == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) {
    return refused(CUBLAS_STATUS_INVALID_VALUE);
  }
  for (const MatrixLayout* layout : {a, b, c, d}) {
    if (!is_consistent(*layout)) return refused(CUBLAS_STATUS_INVALID_VALUE);
    if (layout->batch_count != d->batch_count) return refused(CUBLAS_STATUS_INVALID_VALUE);
  }
  if (descriptor->transpose_c != CUBLAS_OP_N) return refused(CUBLAS_STATUS_NOT_SUPPORTED);
  if (descriptor->pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
      descriptor->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
    return refused(CUBLAS_STATUS_NOT_SUPPORTED);
  }
  Checked checked;
  GemmProblem& problem = checked.problem;
  problem.transpose_a = is_transposition(descriptor->transpose_a);
  problem.transpose_b = is_transposition(descriptor->transpose_b);
  const std::uint64_t m = problem.transpose_a ? a->columns : a->rows;
  const std::uint64_t k = problem.transpose_a ? a->rows : a->columns;
  const std::uint64_t n = problem.transpose_b ? b->rows : b->columns;
  if (k != (problem.transpose_b ? b->columns : b->rows)) return refused(CUBLAS_STATUS_INVALID_VALUE);
  for (const MatrixLayout* layout : {c, d}) {
    if (layout->rows != m || layout->columns != n) return refused(CUBLAS_STATUS_INVALID_VALUE);
  }
  if (c->order != d->order) return refused(CUBLAS_STATUS_NOT_SUPPORTED);
  if (const cublasStatus_t status = check_types(*descriptor, *a, *b, *c, *d)) return refused(status);
  if (const cublasStatus_t status = read_epilogue(*descriptor, *d, &problem.epilogue)) return refused(status);
  problem.a = stored(*a);
  problem.b = stored(*b);
  problem.c = stored(*c);
  problem.d = stored(*d);
  problem.batch_count = d->batch_count;
  problem.tf32 = descriptor->compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
  checked.k = static_cast<std::int64_t>(k);
  return checked;
}

// An algorithm as the heuristic offers it, best first: the fast ones need room and aligned matrices.
struct Offer {
  Algorithm algorithm;
  std::uint32_t reduction_scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  float waves = 1;
};

std::vector<Offer> offers(const Checked& checked) {
  const auto m = static_cast<std::uint64_t>(checked.problem.d.rows);
  const auto n = static_cast<std::uint64_t>(checked.problem.d.columns);
  const auto k = static_cast<std::uint64_t>(checked.k);
  const auto made = [&](std::uint64_t nbytes, std::uint64_t alignment) {
    return Algorithm{kAlgorithmTag, nbytes, alignment, m, n, k};
  };
  const auto element_nbytes = static_cast<std::uint64_t>(element_bits(checked.problem.a.type) / 8);
  return {{made(4 * m * n * static_cast<std::uint64_t>(checked.problem.batch_count) * 2 + 1, 16),
           CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0.75f},
          {made(32771, 16), CUBLASLT_REDUCTION_SCHEME_INPLACE, 0.5f},
          {made(0, element_nbytes), CUBLASLT_REDUCTION_SCHEME_NONE, 0.25f}};
}

bool is_aligned(const void* pointer, std::uint64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

bool is_overlapped(const StoredMatrix& d, std::int64_t batch_count) {
  const std::int64_t lines = d.row_major ? d.rows : d.columns;
  return batch_count > 1 && d.batch_stride < d.leading_dimension * lines;
}

}  // namespace

extern "C" {

CUDASIM_API cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const Lock lock;
  if (const int status = injected_library("cublasLtCreate")) return static_cast<cublasStatus_t>(status);
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!device_is_usable()) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext{.device = current_device()};
  handle_created(kHandle, *handle);
  return CUBLAS_STATUS_SUCCESS;
}

CUDASIM_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const Lock lock;
  const int status = injected_library("cublasLtDestroy");
  if (handle == nullptr || !handle_destroyed(kHandle, handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return static_cast<cublasStatus_t>(status);
}

CUDASIM_API size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
CUDASIM_API const char* cublasLtGetStatusName(cublasStatus_t status) { return cublasGetStatusName(status); }
CUDASIM_API const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusString(status); }

CUDASIM_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                                                          cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                          cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                          cublasLtMatmulPreference_t preference_handle, int requested,
                                                          cublasLtMatmulHeuristicResult_t results[], int* returned) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasLtMatmulAlgoGetHeuristic", handle)) return status;
  const MatmulPreference* preference = find_preference(preference_handle);
  if (preference == nullptr || requested <= 0 || results == nullptr || returned == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (preference->search_mode != CUBLASLT_SEARCH_BEST_FIT) return CUBLAS_STATUS_NOT_SUPPORTED;
  *returned = 0;
  const Checked checked =
      check(find_descriptor(descriptor), find_layout(a), find_layout(b), find_layout(c), find_layout(d));
  if (checked.status != CUBLAS_STATUS_SUCCESS) return checked.status;
  const std::uint32_t alignment =
      *std::min_element(std::begin(preference->alignments), std::end(preference->alignments));
  for (const Offer& offer : offers(checked)) {
    if (*returned == requested) break;
    if (offer.algorithm.workspace_nbytes > preference->max_workspace_nbytes) continue;
    if (offer.algorithm.alignment > alignment) continue;
    if ((offer.reduction_scheme & ~preference->reduction_schemes) != 0) continue;
    cublasLtMatmulHeuristicResult_t result{};
    std::memcpy(&result.algo, &offer.algorithm, sizeof offer.algorithm);
    result.workspaceSize = offer.algorithm.workspace_nbytes;
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = offer.waves;
    results[(*returned)++] = result;
  }
  return *returned > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

CUDASIM_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor_handle,
                                          const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                                          const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                                          const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                                          cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                                          void* workspace, size_t workspace_nbytes, cudaStream_t stream) {
  const Lock lock;
  if (const cublasStatus_t status = enter("cublasLtMatmul", handle)) return status;
  const MatmulDescriptor* descriptor = find_descriptor(descriptor_handle);
  Checked checked =
      check(descriptor, find_layout(a_layout), find_layout(b_layout), find_layout(c_layout), find_layout(d_layout));
  if (checked.status != CUBLAS_STATUS_SUCCESS) return checked.status;
  if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  GemmProblem& problem = checked.problem;

  Algorithm algorithm{};
  if (algo == nullptr) {
    for (const Offer& offer : offers(checked)) {
      algorithm = offer.algorithm;
      if (algorithm.workspace_nbytes <= workspace_nbytes) break;
    }
    algorithm.alignment = 1;
  } else {
    std::memcpy(&algorithm, algo, sizeof algorithm);
    if (algorithm.tag != kAlgorithmTag || algorithm.m != static_cast<std::uint64_t>(problem.d.rows) ||
        algorithm.n != static_cast<std::uint64_t>(problem.d.columns) ||
        algorithm.k != static_cast<std::uint64_t>(checked.k)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (algorithm.workspace_nbytes > workspace_nbytes) return CUBLAS_STATUS_INVALID_VALUE;
  if (algorithm.workspace_nbytes != 0) {
    if (workspace == nullptr || !is_aligned(workspace, 16)) return CUBLAS_STATUS_INVALID_VALUE;
    problem.workspace = workspace;
    problem.workspace_nbytes = algorithm.workspace_nbytes;
  }

  const auto* alpha_float = static_cast<const float*>(alpha);
  const auto* beta_float = static_cast<const float*>(beta);
  if (descriptor->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
    problem.alpha.device = alpha_float;
    problem.beta.device = beta_float;
  } else {
    problem.alpha.value = *alpha_float;
    problem.beta.value = *beta_float;
  }
  if (problem.d.rows == 0 || problem.d.columns == 0) return CUBLAS_STATUS_SUCCESS;
  if (d == nullptr || (checked.k > 0 && (a == nullptr || b == nullptr))) return CUBLAS_STATUS_INVALID_VALUE;
  const bool needs_c = problem.beta.device != nullptr || problem.beta.value != 0;
  if (needs_c && c == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const GemmEpilogue& epilogue = problem.epilogue;
  if ((epilogue.add_bias || epilogue.bias_gradient != GemmEpilogue::BiasGradient::none) && epilogue.bias == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if ((epilogue.write_mask || epilogue.apply_mask) && (epilogue.mask == nullptr || !is_aligned(epilogue.mask, 16))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (is_overlapped(problem.d, problem.batch_count)) return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* pointer : {a, b, static_cast<const void*>(d), needs_c ? c : nullptr}) {
    if (!is_aligned(pointer, algorithm.alignment)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  problem.a.data = a;
  problem.b.data = b;
  problem.c.data = c;
  problem.d.data = d;
  return enqueue_gemm(stream, "cublasLtMatmul", problem) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                        : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
