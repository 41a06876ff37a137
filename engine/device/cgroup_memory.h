// How much memory the container of this process may use. Not installed.
#pragma once

#include <string>

#include "engine/device/device_runtime.h"

namespace heddle {

// The tightest limit of the process's control groups (versions 1 and 2) and what is left of it; file caches, which the
// kernel gives up, count as left. All zero without a limit. Arguments: for tests.
MemoryInfo cgroup_memory(const std::string& cgroup_root = "/sys/fs/cgroup",
                         const std::string& own_groups = "/proc/self/cgroup");

}  // namespace heddle
