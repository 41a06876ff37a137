// What the plugin libheddle_cuda.so exports: the entry, which engine/device/cuda_plugin.cpp calls, and a function for
// tests. The reasons given here end up in one sentence that a user reads.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "engine/core/version.h"
#include "engine/device/cuda_plugin_abi.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_runtime.h"
#include "kernels/launch/launch_log.h"
#include "nccl_comm/nccl_plugin.h"

namespace heddle::cuda {
namespace {

std::string release(int number) { return join_text(number / 1000, ".", number % 1000 / 10); }

std::string why_no_device(cudaError_t error) {
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "no NVIDIA driver is installed";
    return join_text("the NVIDIA driver is too old: it offers CUDA ", release(driver), ", this build needs ",
                     release(CUDART_VERSION));
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible == nullptr) return "the driver finds no GPU";
    return join_text("the driver offers no GPU with CUDA_VISIBLE_DEVICES='", visible, "'");
  }
  return join_text("the driver does not answer: ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
}

int count_devices(char* reason, std::size_t capacity) {
  int count = 0;  // not written on an error
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) cudaGetLastError();
  if (error == cudaSuccess && count > 0) return count;
  std::snprintf(reason, capacity, "%s", why_no_device(error).c_str());
  return 0;
}

void register_devices(int count) {
  for (int i = 0; i < count; ++i) {
    register_device(std::make_unique<CudaRuntime>(i, HEDDLE_GPU_ARCHS));
    register_backend(Device::cuda(i), [i] { return std::make_unique<CudaBackend>(i); });
  }
}

constexpr CudaPluginAbi kPlugin{.abi = kCudaPluginAbi,
                                .version = HEDDLE_VERSION_STRING,
                                .built_for = HEDDLE_GPU_ARCHS,
                                .count_devices = count_devices,
                                .register_devices = register_devices,
                                .is_page_locked = is_page_locked,
                                .nccl_version = comm::nccl_library_version,
                                .nccl_memory = comm::nccl_library_memory,
                                .make_nccl_communicators = comm::make_nccl_communicators};

}  // namespace
}  // namespace heddle::cuda

extern "C" __attribute__((visibility("default"))) const heddle::CudaPluginAbi* heddle_cuda_plugin() {
  return &heddle::cuda::kPlugin;
}

// Tests give a LaunchObserver.
extern "C" __attribute__((visibility("default"))) void heddle_cuda_set_launch_observer(
    heddle::cuda::LaunchObserver observer) {
  heddle::cuda::set_launch_observer(observer);
}
