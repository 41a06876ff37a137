// Turns error codes of the CUDA runtime into exceptions. Used by everything in kernels/; libraries have checkers of
// their own beside their wrappers.
#pragma once

#include <cuda_runtime_api.h>

namespace heddle::cuda {

// Where a call stands; the standard type of this kind does not exist with clang 14.
struct CallPlace {
  const char* file_name = "";
  int line = 0;
  static constexpr CallPlace current(const char* file_name = __builtin_FILE(), int line = __builtin_LINE()) noexcept {
    return {file_name, line};
  }
};

// Returns on cudaSuccess. Throws: DeviceError with the call, the code's name and text, the place, and the kernels
// queued since the last wait (see launch_log.h), one of which may be the cause. The error is taken off the runtime's
// list.
void check(cudaError_t code, const char* call, CallPlace place = CallPlace::current());

// The text of that exception for an error of any library: "cuDNN: call: NAME (text), at file:line; kernels ...".
[[noreturn]] void throw_device_error(const char* library, const char* call, const char* code_name,
                                     const char* explanation, CallPlace place = CallPlace::current());

}  // namespace heddle::cuda

#define HEDDLE_CUDA_CHECK(call) ::heddle::cuda::check((call), #call)
