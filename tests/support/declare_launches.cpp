// Makes every test program on the simulated CUDA hold the plugin's kernels to what they declare: the accesses of each
// launch are handed to the simulator, which keeps all other memory out of the kernel's reach.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <span>

#include "engine/device/cuda_plugin.h"
#include "kernels/launch/launch_log.h"
#include "tests/cudasim/cudasim.h"
#include "tests/support/launch_list.h"

namespace heddle::testing {
namespace {

struct List {
  std::mutex mutex;
  bool open = false;
  std::vector<Launch> launches;
};
List& list() {
  static List* const instance = new List;  // also for what is launched when static objects end
  return *instance;
}

void note(const char* name, std::span<const cuda::Access> accesses) {
  const std::lock_guard lock(list().mutex);
  if (!list().open) return;
  Launch launch{.name = name};
  for (const cuda::Access& access : accesses) {
    if (access.data == nullptr) continue;
    const auto touched = static_cast<std::int64_t>(access.nbytes - access.untouched_nbytes);
    if (access.read) launch.read_nbytes += touched;
    if (access.written) launch.written_nbytes += touched;
  }
  list().launches.push_back(launch);
}

// A library call is told, too. It declares for itself; what is handed over here is replaced by the next kernel's.
void declare(const char* name, std::span<const cuda::Access> accesses) {
  std::vector<cudasim::Access> declared;
  for (const cuda::Access& access : accesses) {
    if (access.data == nullptr || access.nbytes == 0) continue;
    if (access.read || access.kept) declared.push_back({access.data, access.nbytes, false});
    if (access.written) declared.push_back({access.data, access.nbytes, true});
  }
  cudasim::declare_next_launch(declared);
  note(name, accesses);
}

const bool observing = [] {
  if (!load_cuda_plugin()) return false;
  void* const plugin = dlopen(cuda_plugin_info().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto set_observer =
      plugin == nullptr
          ? nullptr
          : reinterpret_cast<void (*)(cuda::LaunchObserver)>(dlsym(plugin, "heddle_cuda_set_launch_observer"));
  if (set_observer == nullptr) {
    std::fprintf(stderr, "the plugin does not tell what it launches\n");
    std::exit(1);
  }
  set_observer(declare);
  return true;
}();

}  // namespace

void start_launch_list() {
  const std::lock_guard lock(list().mutex);
  list().launches.clear();
  list().open = true;
}

std::vector<Launch> end_launch_list() {
  const std::lock_guard lock(list().mutex);
  list().open = false;
  return std::move(list().launches);
}

}  // namespace heddle::testing
