#include "engine/device/cpu_runtime.h"

#include "engine/device/cgroup_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace heddle {
namespace {

constexpr std::size_t kAskedFrom = std::size_t{64} << 20;

// Value in bytes of a "Name:  123 kB" row of /proc/meminfo, 0 if there is none.
std::size_t meminfo_nbytes(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::size_t value = 0;
  while (file >> key >> value) {
    std::getline(file, unit);
    if (key == name + ":") return value * 1024;
  }
  return 0;
}

}  // namespace

std::string CpuRuntime::description() const {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const auto colon = line.find(':');
      return colon == std::string::npos || colon + 2 > line.size() ? "CPU" : line.substr(colon + 2);
    }
  }
  return "CPU";
}

void* CpuRuntime::allocate(std::size_t nbytes) {
  // What the machine or the container has not got cannot be used; with overcommit the kernel would say so only by
  // killing us. Small requests are not worth the question: a process that is that close to the end is beyond help.
  if (nbytes >= kAskedFrom) {
    const MemoryInfo memory = memory_info();
    if (memory.total_nbytes != 0 && nbytes > memory.free_nbytes) return nullptr;
  }
  void* const data = ::mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  ::madvise(data, nbytes, MADV_HUGEPAGE);  // only a hint
  return data;
}

void CpuRuntime::deallocate(void* data, std::size_t nbytes) noexcept { ::munmap(data, nbytes); }

MemoryInfo CpuRuntime::memory_info() const {
  MemoryInfo memory{.free_nbytes = meminfo_nbytes("MemAvailable"), .total_nbytes = meminfo_nbytes("MemTotal")};
  if (const MemoryInfo group = cgroup_memory(); group.total_nbytes != 0) {
    memory.total_nbytes = std::min(memory.total_nbytes, group.total_nbytes);
    memory.free_nbytes = std::min(memory.free_nbytes, group.free_nbytes);
  }
  return memory;
}

void CpuRuntime::copy_async(void* destination, Device, const void* source, Device, std::size_t nbytes, Stream) {
  if (nbytes != 0) std::memmove(destination, source, nbytes);
}

void CpuRuntime::fill_async(void* destination, unsigned char value, std::size_t nbytes, Stream) {
  if (nbytes != 0) std::memset(destination, value, nbytes);
}

}  // namespace heddle
