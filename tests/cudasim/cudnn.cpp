// The simulated cuDNN: handles, version and texts of errors.
#include <cudnn.h>

#include <algorithm>
#include <cstring>

#include "tests/cudasim/cudnn_descriptor.h"
#include "tests/cudasim/internal.h"
#include "tests/cudasim/library_face.h"

// The handle that cuDNN leaves opaque.
struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

namespace cudasim {
namespace {

constexpr const char* kHandle = "cuDNN handle";
thread_local std::string last_failure;

bool is_handle(cudnnHandle_t handle) { return handle != nullptr && handle_alive(kHandle, handle); }

}  // namespace

cudnnStatus_t cudnn_failure(cudnnStatus_t status, const std::string& text) {
  last_failure = text;
  return status;
}

CudnnHandleInfo find_cudnn_handle(cudnnHandle_t handle) {
  if (!is_handle(handle)) return {};
  return {handle->device, handle->stream};
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUDASIM_API size_t cudnnGetVersion() { return CUDNN_VERSION; }

CUDASIM_API size_t cudnnGetCudartVersion() { return CUDART_VERSION; }

CUDASIM_API cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const Lock lock;
  if (const int status = injected_library("cudnnCreate")) return static_cast<cudnnStatus_t>(status);
  if (handle == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the handle");
  if (!device_is_usable()) {
    return cudnn_failure(CUDNN_STATUS_NOT_INITIALIZED, "the device cannot be used");
  }
  *handle = new cudnnContext{.device = current_device()};
  handle_created(kHandle, *handle);
  return CUDNN_STATUS_SUCCESS;
}

CUDASIM_API cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const Lock lock;
  const int status = injected_library("cudnnDestroy");
  if (handle == nullptr || !handle_destroyed(kHandle, handle)) {
    return cudnn_failure(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
  }
  delete handle;
  return static_cast<cudnnStatus_t>(status);
}

CUDASIM_API cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const Lock lock;
  if (const int status = injected_library("cudnnSetStream")) return static_cast<cudnnStatus_t>(status);
  if (!is_handle(handle)) return cudnn_failure(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
  if (device_of(stream) != handle->device) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "the stream belongs to another device");
  }
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

CUDASIM_API cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  const Lock lock;
  if (!is_handle(handle)) return cudnn_failure(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
  if (stream == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for the stream");
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

// Gives the text of the last failure of the calling thread, once.
CUDASIM_API void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message == nullptr || max_size == 0) return;
  const std::size_t length = std::min(last_failure.size(), max_size - 1);
  std::memcpy(message, last_failure.data(), length);
  message[length] = '\0';
  last_failure.clear();
}

CUDASIM_API const char* cudnnGetErrorString(cudnnStatus_t status) {
  // NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the text of a status is its name.
#define HEDDLE_STATUS(name) \
  case name: return #name
  switch (status) {
    HEDDLE_STATUS(CUDNN_STATUS_SUCCESS);
    HEDDLE_STATUS(CUDNN_STATUS_NOT_INITIALIZED);
    HEDDLE_STATUS(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    HEDDLE_STATUS(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    HEDDLE_STATUS(CUDNN_STATUS_NOT_SUPPORTED);
    HEDDLE_STATUS(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
    HEDDLE_STATUS(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
    HEDDLE_STATUS(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    HEDDLE_STATUS(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
    HEDDLE_STATUS(CUDNN_STATUS_INTERNAL_ERROR);
    HEDDLE_STATUS(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    HEDDLE_STATUS(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    HEDDLE_STATUS(CUDNN_STATUS_EXECUTION_FAILED);
    HEDDLE_STATUS(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
    HEDDLE_STATUS(CUDNN_STATUS_EXECUTION_FAILED_CUDART);
    default: return "CUDNN_STATUS_UNKNOWN";
  }
#undef HEDDLE_STATUS
}

}  // extern "C"
