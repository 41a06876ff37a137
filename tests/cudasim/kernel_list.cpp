// Kernels by their addresses and names; see the header.
#include "tests/cudasim/kernel_list.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <unordered_map>

#include "tests/cudasim/device_limits.h"
#include "tests/cudasim/machine.h"
#include "tests/cudasim/symbols.h"

namespace cudasim {
namespace {

struct HostCode {
  const void* code = nullptr;
  KernelFactory factory = nullptr;
};

struct Lists {
  // Kernels stay known for the life of the process, stubs as long as their file is loaded.
  std::unordered_map<const void*, Kernel> kernels;
  std::unordered_map<std::string, HostCode> by_name;
  bool tables_loaded = false;
};

Lists& lists() {
  static auto* instance = new Lists;
  return *instance;
}

// The libraries named in CUDASIM_KERNELS, which register their kernels by name when they are loaded.
void load_tables() {
  if (lists().tables_loaded) return;
  lists().tables_loaded = true;
  const char* const files = std::getenv("CUDASIM_KERNELS");
  std::istringstream entries(files == nullptr ? "" : files);
  for (std::string file; std::getline(entries, file, ':');) {
    if (!file.empty() && dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) die("CUDASIM_KERNELS: %s", dlerror());
  }
}

}  // namespace

bool Kernel::runs_here() const { return binary == nullptr || binary->has_code_for(device_capability()); }

Kernel* find_kernel(const void* function) {
  const auto found = lists().kernels.find(function);
  return found == lists().kernels.end() ? nullptr : &found->second;
}

void add_stub(const void* stub, const char* mangled, const std::shared_ptr<const FatBinary>& binary) {
  load_tables();
  const auto host = lists().by_name.find(mangled);
  if (host == lists().by_name.end()) {
    die("a program that nvcc compiled registers the kernel %s (%s), of which no library in CUDASIM_KERNELS has host "
        "code",
        readable_name(mangled).c_str(), mangled);
  }
  lists().kernels[stub] = {.factory = host->second.factory,
                           .code = host->second.code,
                           .name = readable_name(mangled),
                           .binary = binary,
                           .max_dynamic_shared = kSharedPerBlock};
}

void remove_stubs(const FatBinary* binary) {
  std::erase_if(lists().kernels, [binary](const auto& entry) { return entry.second.binary.get() == binary; });
}

CUDASIM_API void register_kernel(const void* function, KernelFactory factory) {
  const Lock lock;
  Kernel& kernel = lists().kernels[function];
  if (kernel.factory != nullptr) return;
  kernel = {.factory = factory,
            .code = function,
            .name = symbol_name(function),
            .binary = nullptr,
            .max_dynamic_shared = kSharedPerBlock};
}

CUDASIM_API void register_named_kernel(const char* mangled, const void* kernel, KernelFactory factory) {
  const Lock lock;
  lists().by_name[mangled] = {kernel, factory};
}

}  // namespace cudasim
