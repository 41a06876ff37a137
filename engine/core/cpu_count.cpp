#include "engine/core/cpu_count.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <vector>

namespace heddle {

int affinity_cpu_count() {
  for (int size = 1024; size <= 1 << 20; size *= 2) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(size));
    if (set == nullptr) break;
    const std::size_t nbytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    const bool known = ::sched_getaffinity(0, nbytes, set) == 0;
    const int count = known ? CPU_COUNT_S(nbytes, set) : 0;
    CPU_FREE(set);
    if (known) return std::max(count, 1);
  }
  return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

int quota_cpu_count(const std::string& cgroup_root, const std::string& own_groups) {
  constexpr int kNone = std::numeric_limits<int>::max();
  int best = kNone;
  const auto limit = [&best](double quota, double period) {
    if (!(quota > 0 && period > 0)) return;
    const double count = std::ceil(quota / period);
    if (count < static_cast<double>(best)) best = std::max(1, static_cast<int>(count));
  };
  std::vector<std::string> folders = {cgroup_root, cgroup_root + "/cpu"};
  std::ifstream own(own_groups);
  for (std::string line; std::getline(own, line);) {
    const auto last = line.rfind(':');
    if (last == std::string::npos) continue;
    const bool v2 = line.starts_with("0::");
    if (!v2 && line.find("cpu") == std::string::npos) continue;
    for (std::string path = line.substr(last + 1); path.size() > 1 && path[0] == '/'; path.resize(path.rfind('/'))) {
      folders.push_back(cgroup_root + (v2 ? "" : "/cpu") + path);
    }
  }
  for (const std::string& folder : folders) {
    // Version 2: "quota period", quota "max" without a limit. Version 1: a file each, quota -1 without a limit.
    std::string quota;
    double period = 0, quota_us = 0;
    if (std::ifstream v2(folder + "/cpu.max"); v2 >> quota >> period) limit(std::atof(quota.c_str()), period);
    if (std::ifstream q(folder + "/cpu.cfs_quota_us"), p(folder + "/cpu.cfs_period_us"); q >> quota_us && p >> period) {
      limit(quota_us, period);
    }
  }
  return best;
}

}  // namespace heddle
