#include "engine/device/cgroup_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

namespace heddle {
namespace {

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::uint64_t value = 0;
  if (std::ifstream file(path); file >> value) return value;
  return std::nullopt;  // "max", or no such file
}

// The value of a row "name value" of memory.stat, 0 if there is none.
std::uint64_t read_stat(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string key;
  for (std::uint64_t value = 0; file >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

struct Files {
  const char *limit, *usage, *cache;
};
constexpr Files kVersion2{"/memory.max", "/memory.current", "inactive_file"};
constexpr Files kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};

}  // namespace

MemoryInfo cgroup_memory(const std::string& cgroup_root, const std::string& own_groups) {
  // Folders with the files of a group: the root is the container's own where it sees only itself.
  std::vector<std::pair<std::string, const Files*>> folders = {{cgroup_root, &kVersion2},
                                                               {cgroup_root + "/memory", &kVersion1}};
  std::ifstream own(own_groups);
  for (std::string line; std::getline(own, line);) {
    const auto first = line.find(':'), last = line.rfind(':');
    if (first == std::string::npos || first == last) continue;
    const bool v2 = line.starts_with("0::");
    if (!v2 && line.substr(first + 1, last - first - 1) != "memory") continue;
    for (std::string path = line.substr(last + 1); path.size() > 1 && path[0] == '/'; path.resize(path.rfind('/'))) {
      folders.emplace_back(cgroup_root + (v2 ? "" : "/memory") + path, v2 ? &kVersion2 : &kVersion1);
    }
  }
  MemoryInfo tightest;
  for (const auto& [folder, files] : folders) {
    const auto limit = read_number(folder + files->limit), usage = read_number(folder + files->usage);
    // Version 1 writes a huge number where there is no limit.
    if (!limit || *limit >= std::uint64_t{1} << 60) continue;
    const std::uint64_t used = usage.value_or(0);
    const std::uint64_t cache = std::min(read_stat(folder + "/memory.stat", files->cache), used);
    const std::uint64_t left = *limit - std::min(*limit, used - cache);
    const bool first = tightest.total_nbytes == 0;
    tightest.total_nbytes = first ? *limit : std::min<std::uint64_t>(tightest.total_nbytes, *limit);
    tightest.free_nbytes = first ? left : std::min<std::uint64_t>(tightest.free_nbytes, left);
  }
  return tightest;
}

}  // namespace heddle
