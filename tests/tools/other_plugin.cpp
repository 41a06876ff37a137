// Files that are not the plugin of this library, for tests of its loader: built several times with other OTHER_*
// values.
#include <cstdio>

#include "engine/core/version.h"
#include "engine/device/cuda_plugin_abi.h"

#if defined(OTHER_ABI)
namespace {

int no_device(char* reason, std::size_t capacity) {
  std::snprintf(reason, capacity, "the driver of this test offers no GPU");
  return 0;
}

const heddle::CudaPluginAbi kPlugin{.abi = OTHER_ABI,
                                    .version = OTHER_VERSION,
                                    .built_for = "nothing",
                                    .count_devices = no_device,
                                    .register_devices = nullptr,
                                    .is_page_locked = nullptr,
                                    .nccl_version = nullptr,
                                    .nccl_memory = nullptr,
                                    .make_nccl_communicators = nullptr};

}  // namespace

extern "C" __attribute__((visibility("default"))) const heddle::CudaPluginAbi* heddle_cuda_plugin() { return &kPlugin; }
#endif
