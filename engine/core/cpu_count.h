// How many processors this process may use: the affinity mask and the container's quota. Used by parallel.cpp; not
// installed.
#pragma once

#include <string>

namespace heddle {

// Processors of the calling thread's affinity mask, at least 1.
int affinity_cpu_count();
// The CPU quota of the control groups (version 1 or 2) that the process is in, and of those above them, rounded up to
// whole processors; a very large number without one. cgroup_root is where they are mounted, own_groups lists the
// process's own.
int quota_cpu_count(const std::string& cgroup_root = "/sys/fs/cgroup",
                    const std::string& own_groups = "/proc/self/cgroup");

}  // namespace heddle
