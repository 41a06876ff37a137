// Turns error codes of the CUDA runtime into exceptions. Used by everything in kernels/; libraries have checkers of
// their own beside their wrappers.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

namespace heddle::cuda {

// Returns on cudaSuccess. Throws: DeviceError with the call, the code's name and text, the place, and the kernels
// queued since the last wait (see launch_log.h), one of which may be the cause. The error is taken off the runtime's
// list.
void check(cudaError_t code, const char* call, const std::source_location& place = std::source_location::current());

// The text of that exception for an error of any library: "cuDNN: call: NAME (text), at file:line; kernels ...".
[[noreturn]] void throw_device_error(const char* library, const char* call, const char* code_name,
                                     const char* explanation,
                                     const std::source_location& place = std::source_location::current());

}  // namespace heddle::cuda

#define HEDDLE_CUDA_CHECK(call) ::heddle::cuda::check((call), #call)
