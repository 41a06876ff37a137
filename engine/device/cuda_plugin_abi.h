// What libheddle.so and the plugin libheddle_cuda.so say to each other: one C function that returns one struct.
// Included by both; not installed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace heddle {
namespace comm {
class Communicator;
struct NcclOptions;
}  // namespace comm

// Changes with every change of this struct. The C++ interfaces behind it (DeviceRuntime, Backend) have no number of
// their own: the plugin must be of the same version as the library.
inline constexpr int kCudaPluginAbi = 5;

struct CudaPluginAbi {
  int abi;                // kCudaPluginAbi as the plugin was built; always the first field
  const char* version;    // heddle's, as the plugin was built
  const char* built_for;  // GPU generations that its kernels were compiled for: "75, 80, 90 and PTX 90"
  // Number of GPUs that the driver offers. With 0, the reason as a phrase in `reason` (capacity bytes, ended by 0).
  int (*count_devices)(char* reason, std::size_t capacity);
  // Registers runtime and backend of each of them. Throws what register_device() throws.
  void (*register_devices)(int count);
  // Whether GPUs copy from and to this host memory by themselves. Throws: DeviceError.
  bool (*is_page_locked)(const void* host);
  // Of the NCCL that the plugin uses, as ncclGetVersion() says it; 0 in a build without.
  int (*nccl_version)();
  // Where that NCCL lets exchanged tensors lie, or why not, as a phrase.
  std::string (*nccl_memory)();
  // Connects `count` ranks of a group at once, all of it or one; fills as many places of made. Contract:
  // make_nccl_communicator() in nccl_comm/nccl_communicator.h.
  void (*make_nccl_communicators)(comm::NcclOptions* ranks, std::size_t count,
                                  std::unique_ptr<comm::Communicator>* made);
};

// The plugin in use; null before load_cuda_plugin() has found a GPU.
const CudaPluginAbi* loaded_cuda_plugin() noexcept;

inline constexpr const char* kCudaPluginEntry = "heddle_cuda_plugin";
using CudaPluginEntry = const CudaPluginAbi* (*)();

}  // namespace heddle
