// Loads the CUDA plugin libheddle_cuda.so the first time that a GPU is asked for. The plugin is the only part that
// needs CUDA libraries; a program that never asks starts and runs without them.
#pragma once

#include <string>

namespace heddle {

// What is known about the plugin after it was asked for.
struct CudaPluginInfo {
  std::string path;       // file that was loaded or could not be; empty if none was found
  std::string version;    // heddle's, as the plugin was built
  std::string built_for;  // GPU generations: "75, 80, 90 and PTX 90"
  int device_count = 0;   // registered as Device::cuda(0) and so on
  std::string problem;    // why there is no device, in one phrase; empty if there is one
};

// True if there is at least one GPU; all are registered then. Looks for the plugin in $HEDDLE_PLUGIN_PATH (folders or
// files, separated by colons), beside libheddle.so, and in the build tree. The first call does the work, others return
// its result. It stays loaded until the program ends. Thread-safe. why_not: receives the problem unless nullptr.
bool load_cuda_plugin(std::string* why_not = nullptr);
// The same, with all that is known.
const CudaPluginInfo& cuda_plugin_info();

// True if GPUs copy from this host memory by themselves, so that it must not change before a copy is done. False where
// no plugin was loaded. Throws: DeviceError.
bool is_page_locked(const void* host);

// True if the library of an NVIDIA driver can be loaded: a cheap question, which loads no plugin. False means that no
// real GPU can be used.
bool has_cuda_driver();

}  // namespace heddle
