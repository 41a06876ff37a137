// The CUDA runtime's functions for errors.
#include "tests/cudasim/api.h"

using namespace cudasim;

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define CUDASIM_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    CUDASIM_ERROR(cudaSuccess, "no error"),
    CUDASIM_ERROR(cudaErrorInvalidValue, "invalid argument"),
    CUDASIM_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    CUDASIM_ERROR(cudaErrorInitializationError, "initialization error"),
    CUDASIM_ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    CUDASIM_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    CUDASIM_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    CUDASIM_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    CUDASIM_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    CUDASIM_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    CUDASIM_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    CUDASIM_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    CUDASIM_ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    CUDASIM_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    CUDASIM_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    CUDASIM_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    CUDASIM_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    CUDASIM_ERROR(cudaErrorNotReady, "device not ready"),
    CUDASIM_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    CUDASIM_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    CUDASIM_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    CUDASIM_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    CUDASIM_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    CUDASIM_ERROR(cudaErrorAssert, "device-side assert triggered"),
    CUDASIM_ERROR(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    CUDASIM_ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    CUDASIM_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    CUDASIM_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    CUDASIM_ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    CUDASIM_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    CUDASIM_ERROR(cudaErrorNotSupported, "operation not supported"),
    CUDASIM_ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    CUDASIM_ERROR(cudaErrorSystemDriverMismatch, "system has unsupported display driver / cuda driver combination"),
    CUDASIM_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    CUDASIM_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    CUDASIM_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    CUDASIM_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    CUDASIM_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    CUDASIM_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    CUDASIM_ERROR(cudaErrorStreamCaptureImplicit,
                  "operation would make the legacy stream depend on a capturing stream"),
    CUDASIM_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    CUDASIM_ERROR(cudaErrorStreamCaptureWrongThread,
                  "attempt to terminate a thread-local capture sequence from another thread"),
    CUDASIM_ERROR(cudaErrorTimeout, "wait operation timed out"),
    CUDASIM_ERROR(cudaErrorGraphExecUpdateFailure, "the graph update was not performed"),
    CUDASIM_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef CUDASIM_ERROR

const ErrorText* find_error(cudaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

// A device that has failed says so each time; other errors are told once.
cudaError_t error_to_tell() {
  const Lock lock;
  start_machine();
  const cudaError_t sticky = device_count() == 0 ? cudaSuccess : sticky_error(current_device());
  return sticky != cudaSuccess ? sticky : last_error();
}

}  // namespace

CUDART cudaError_t cudaGetLastError() {
  const cudaError_t error = error_to_tell();
  clear_last_error();
  return error;
}

CUDART cudaError_t cudaPeekAtLastError() { return error_to_tell(); }

CUDART const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* entry = find_error(error);
  return entry == nullptr ? "unrecognized error code" : entry->name;
}

CUDART const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* entry = find_error(error);
  return entry == nullptr ? "unrecognized error code" : entry->text;
}
