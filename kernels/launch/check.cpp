#include "kernels/launch/check.h"

#include <string>

#include "engine/core/error.h"
#include "kernels/launch/launch_log.h"

namespace heddle::cuda {

void throw_device_error(const char* library, const char* call, const char* code_name, const char* explanation,
                        CallPlace place) {
  const std::string kernels = recent_launches();
  throw DeviceError(join_text(library, ": ", call, " failed with ", code_name, " (", explanation, ") at ",
                              place.file_name, ":", place.line,
                              kernels.empty() ? "" : "; queued since the last wait: ", kernels));
}

void check(cudaError_t code, const char* call, CallPlace place) {
  if (code == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  throw_device_error("CUDA", call, cudaGetErrorName(code), cudaGetErrorString(code), place);
}

}  // namespace heddle::cuda
