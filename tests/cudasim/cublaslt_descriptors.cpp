#include "tests/cudasim/cublaslt_descriptors.h"

#include <cstring>

#include "tests/cudasim/internal.h"

namespace cudasim {
namespace {

constexpr const char* kDescriptor = "cuBLASLt matmul descriptor";
constexpr const char* kLayout = "cuBLASLt matrix layout";
constexpr const char* kPreference = "cuBLASLt preference";

// Where the value of an attribute lies; nbytes is 0 for an attribute that the simulation does not have.
struct Field {
  void* data = nullptr;
  std::size_t nbytes = 0;
};
template <class T>
Field field(T& member) {
  return {&member, sizeof member};
}

Field find(MatmulDescriptor& descriptor, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return field(descriptor.compute_type);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return field(descriptor.scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return field(descriptor.pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA: return field(descriptor.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return field(descriptor.transpose_b);
    case CUBLASLT_MATMUL_DESC_TRANSC: return field(descriptor.transpose_c);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return field(descriptor.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return field(descriptor.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return field(descriptor.bias_batch_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return field(descriptor.bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return field(descriptor.mask);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return field(descriptor.mask_leading_dimension);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return field(descriptor.mask_batch_stride);
    default: return {};
  }
}

Field find(MatrixLayout& layout, cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return field(layout.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return field(layout.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return field(layout.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return field(layout.columns);
    case CUBLASLT_MATRIX_LAYOUT_LD: return field(layout.leading_dimension);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return field(layout.batch_count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return field(layout.batch_stride);
    default: return {};
  }
}

Field find(MatmulPreference& preference, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return field(preference.search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return field(preference.max_workspace_nbytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return field(preference.reduction_schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return field(preference.alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return field(preference.alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return field(preference.alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return field(preference.alignments[3]);
    default: return {};
  }
}

template <class Object, class Handle>
Object* object_of(const char* kind, Handle handle) {
  return handle != nullptr && handle_alive(kind, handle) ? reinterpret_cast<Object*>(handle) : nullptr;
}

template <class Object, class Handle>
cublasStatus_t create(const char* kind, Handle* handle, const Object& object) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = reinterpret_cast<Handle>(new Object(object));
  handle_created(kind, *handle);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Object, class Handle>
cublasStatus_t destroy(const char* kind, Handle handle) {
  if (handle == nullptr || !handle_destroyed(kind, handle)) return CUBLAS_STATUS_INVALID_VALUE;
  delete reinterpret_cast<Object*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Object, class Attribute>
cublasStatus_t set(Object* object, Attribute attribute, const void* value, std::size_t nbytes) {
  if (object == nullptr || value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Field target = find(*object, attribute);
  if (target.nbytes == 0 || nbytes != target.nbytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(target.data, value, nbytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Object, class Attribute>
cublasStatus_t get(Object* object, Attribute attribute, void* value, std::size_t nbytes, std::size_t* written) {
  if (object == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Field source = find(*object, attribute);
  if (source.nbytes == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (nbytes == 0) {
    if (written == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    *written = source.nbytes;
    return CUBLAS_STATUS_SUCCESS;
  }
  if (value == nullptr || nbytes != source.nbytes) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, source.data, nbytes);
  if (written != nullptr) *written = nbytes;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

MatmulDescriptor* find_descriptor(cublasLtMatmulDesc_t handle) {
  return object_of<MatmulDescriptor>(kDescriptor, handle);
}
MatrixLayout* find_layout(cublasLtMatrixLayout_t handle) { return object_of<MatrixLayout>(kLayout, handle); }
MatmulPreference* find_preference(cublasLtMatmulPreference_t handle) {
  return object_of<MatmulPreference>(kPreference, handle);
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUDASIM_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute_type,
                                                    cudaDataType_t scale_type) {
  const Lock lock;
  if (const int status = injected_library("cublasLtMatmulDescCreate")) return static_cast<cublasStatus_t>(status);
  return create(kDescriptor, handle, MatmulDescriptor{.compute_type = compute_type, .scale_type = scale_type});
}
CUDASIM_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  const Lock lock;
  return destroy<MatmulDescriptor>(kDescriptor, handle);
}
CUDASIM_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                                          cublasLtMatmulDescAttributes_t attribute, const void* value,
                                                          size_t nbytes) {
  const Lock lock;
  if (const int status = injected_library("cublasLtMatmulDescSetAttribute")) return static_cast<cublasStatus_t>(status);
  return set(find_descriptor(handle), attribute, value, nbytes);
}
CUDASIM_API cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t handle,
                                                          cublasLtMatmulDescAttributes_t attribute, void* value,
                                                          size_t nbytes, size_t* written) {
  const Lock lock;
  return get(find_descriptor(handle), attribute, value, nbytes, written);
}

CUDASIM_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type, uint64_t rows,
                                                      uint64_t columns, int64_t leading_dimension) {
  const Lock lock;
  if (const int status = injected_library("cublasLtMatrixLayoutCreate")) return static_cast<cublasStatus_t>(status);
  return create(kLayout, handle,
                MatrixLayout{.type = static_cast<std::uint32_t>(type),
                             .rows = rows,
                             .columns = columns,
                             .leading_dimension = leading_dimension});
}
CUDASIM_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  const Lock lock;
  return destroy<MatrixLayout>(kLayout, handle);
}
CUDASIM_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                            cublasLtMatrixLayoutAttribute_t attribute,
                                                            const void* value, size_t nbytes) {
  const Lock lock;
  if (const int status = injected_library("cublasLtMatrixLayoutSetAttribute")) {
    return static_cast<cublasStatus_t>(status);
  }
  return set(find_layout(handle), attribute, value, nbytes);
}
CUDASIM_API cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t handle,
                                                            cublasLtMatrixLayoutAttribute_t attribute, void* value,
                                                            size_t nbytes, size_t* written) {
  const Lock lock;
  return get(find_layout(handle), attribute, value, nbytes, written);
}

CUDASIM_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  const Lock lock;
  if (const int status = injected_library("cublasLtMatmulPreferenceCreate")) return static_cast<cublasStatus_t>(status);
  return create(kPreference, handle, MatmulPreference{});
}
CUDASIM_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  const Lock lock;
  return destroy<MatmulPreference>(kPreference, handle);
}
CUDASIM_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                                cublasLtMatmulPreferenceAttributes_t attribute,
                                                                const void* value, size_t nbytes) {
  const Lock lock;
  if (const int status = injected_library("cublasLtMatmulPreferenceSetAttribute")) {
    return static_cast<cublasStatus_t>(status);
  }
  return set(find_preference(handle), attribute, value, nbytes);
}
CUDASIM_API cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t handle,
                                                                cublasLtMatmulPreferenceAttributes_t attribute,
                                                                void* value, size_t nbytes, size_t* written) {
  const Lock lock;
  return get(find_preference(handle), attribute, value, nbytes, written);
}

}  // extern "C"
