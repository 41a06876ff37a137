#include "engine/device/cuda_plugin.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/version.h"
#include "engine/device/cuda_plugin_abi.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "libheddle_cuda.so";

// The plugin that is in use, or null.
std::atomic<const CudaPluginAbi*> loaded{nullptr};

// The file that holds this function: libheddle.so, or the program if it is linked with the static library.
fs::path own_file() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&load_cuda_plugin), &info) == 0 || info.dli_fname == nullptr) return {};
  return info.dli_fname;
}

std::vector<fs::path> candidates(const fs::path& library) {
  std::vector<fs::path> files;
  if (const char* const path = std::getenv("HEDDLE_PLUGIN_PATH"); path != nullptr) {
    std::istringstream entries(path);
    for (std::string entry; std::getline(entries, entry, ':');) {
      if (entry.empty()) continue;
      std::error_code ignored;
      files.push_back(fs::is_directory(entry, ignored) ? fs::path(entry) / kFileName : fs::path(entry));
    }
  }
  std::error_code failed;
  const fs::path real = fs::canonical(library, failed);
  std::vector<fs::path> folders{library.parent_path()};
  if (!failed && real.parent_path() != folders.front()) folders.push_back(real.parent_path());
  for (const fs::path& folder : folders) files.push_back(folder / kFileName);
  // The build tree has engine/libheddle.so and kernels/libheddle_cuda.so.
  for (const fs::path& folder : folders) files.push_back(folder / ".." / "kernels" / kFileName);
  return files;
}

CudaPluginInfo load() {
  CudaPluginInfo info;
  const fs::path library = own_file();
  if (!library.filename().string().starts_with("libheddle.so")) {
    info.problem = "this program is linked with Heddle's static library, which is for the CPU only";
    return info;
  }
  for (const fs::path& file : candidates(library)) {
    std::error_code ignored;
    if (!fs::is_regular_file(file, ignored)) continue;
    info.path = file.lexically_normal().string();
    break;
  }
  if (info.path.empty()) {
    info.problem = join_text("this installation of Heddle has no CUDA plugin (no ", kFileName, " beside ",
                             library.string(), " or in HEDDLE_PLUGIN_PATH)");
    return info;
  }
  void* const handle = ::dlopen(info.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const text = ::dlerror();
    info.problem = join_text("the CUDA plugin cannot be loaded: ", text == nullptr ? info.path.c_str() : text);
    return info;
  }
  const auto entry = reinterpret_cast<CudaPluginEntry>(::dlsym(handle, kCudaPluginEntry));
  const CudaPluginAbi* const plugin = entry == nullptr ? nullptr : entry();
  if (plugin == nullptr) {
    info.problem = join_text(info.path, " is no CUDA plugin of Heddle: it has no function ", kCudaPluginEntry);
    return info;
  }
  if (plugin->abi != kCudaPluginAbi) {
    info.problem = join_text("the CUDA plugin ", info.path, " has ABI ", plugin->abi, ", this library has ",
                             kCudaPluginAbi, ": they are of different versions");
    return info;
  }
  info.version = plugin->version;
  info.built_for = plugin->built_for;
  if (info.version != version()) {
    info.problem =
        join_text("the CUDA plugin ", info.path, " is of version ", info.version, ", this library of ", version());
    return info;
  }
  std::array<char, 512> reason{};
  const int count = plugin->count_devices(reason.data(), reason.size());
  if (count == 0) {
    info.problem = reason.data();
    return info;
  }
  plugin->register_devices(count);
  info.device_count = count;
  loaded.store(plugin, std::memory_order_release);
  return info;
}

}  // namespace

const CudaPluginInfo& cuda_plugin_info() {
  // Never destroyed, so that it can be asked until the very end.
  static const CudaPluginInfo& info = *new CudaPluginInfo([] {
    try {
      return load();
    } catch (const Error& error) {
      return CudaPluginInfo{.problem = error.what()};
    }
  }());
  return info;
}

bool load_cuda_plugin(std::string* why_not) {
  const CudaPluginInfo& info = cuda_plugin_info();
  if (why_not != nullptr) *why_not = info.problem;
  return info.device_count > 0;
}

const CudaPluginAbi* loaded_cuda_plugin() noexcept { return loaded.load(std::memory_order_acquire); }

bool is_page_locked(const void* host) {
  const CudaPluginAbi* const plugin = loaded_cuda_plugin();
  return plugin != nullptr && plugin->is_page_locked(host);
}

bool has_cuda_driver() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return false;
  ::dlclose(driver);
  return true;
}

}  // namespace heddle
