#include "tools/system_info.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/core/file.h"
#include "engine/device/cuda_plugin.h"
#include "engine/device/device_runtime.h"

namespace heddle::tools {
namespace {

// The text after "key :" of the first such line.
std::string field_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find_first_of(":=", key.size());
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", colon + 1);
    const std::size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
  }
  return {};
}

std::uint64_t kibibytes_of(const char* key) {
  return std::strtoull(field_of("/proc/meminfo", key).c_str(), nullptr, 10) * 1024;
}

std::string find_in_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

}  // namespace

CpuInfo cpu_info() {
  CpuInfo info;
  info.model = field_of("/proc/cpuinfo", "model name");
  info.online = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  info.allowed = static_cast<int>(std::thread::hardware_concurrency());
  const std::string flags = fmt::format(" {} ", field_of("/proc/cpuinfo", "flags"));
  for (const char* feature :
       {"sse4_1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_bf16"}) {
    if (flags.find(fmt::format(" {} ", feature)) != std::string::npos) info.features.emplace_back(feature);
  }
  return info;
}

MemoryState memory_state() {
  MemoryState state;
  state.total_nbytes = kibibytes_of("MemTotal");
  state.available_nbytes = kibibytes_of("MemAvailable");
  const std::uint64_t limit = runtime_for(Device::cpu()).memory_info().total_nbytes;
  if (limit < state.total_nbytes) state.limit_nbytes = limit;
  return state;
}

// Not from getrusage(): its number begins with that of the process that started this one.
std::uint64_t peak_resident_nbytes() {
  return std::strtoull(field_of("/proc/self/status", "VmHWM").c_str(), nullptr, 10) * 1024;
}

NvidiaInfo nvidia_info() {
  NvidiaInfo info;
  info.device_files = ::access("/dev/nvidia0", F_OK) == 0 || ::access("/dev/dxg", F_OK) == 0;
  std::ifstream version("/proc/driver/nvidia/version");
  std::getline(version, info.driver_version);
  info.driver_library = has_cuda_driver();
  info.compiler = find_in_path("nvcc");
  if (info.compiler.empty() && ::access("/usr/local/cuda/bin/nvcc", X_OK) == 0) {
    info.compiler = "/usr/local/cuda/bin/nvcc";
  }
  return info;
}

std::string operating_system() {
  utsname names{};
  ::uname(&names);
  return fmt::format("{}, {} {} {}", field_of("/etc/os-release", "PRETTY_NAME"), names.sysname, names.release,
                     names.machine);
}

std::string host_name() {
  utsname names{};
  return ::uname(&names) == 0 ? names.nodename : "";
}

std::string format_nbytes(std::uint64_t nbytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (nbytes < 1024) return fmt::format("{} bytes", nbytes);
  double value = static_cast<double>(nbytes);
  std::size_t unit = 0;
  for (value /= 1024; value >= 1024 && unit + 1 < std::size(kUnits); value /= 1024) ++unit;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string why_not_writable(const std::string& folder) {
  std::filesystem::path path(folder.empty() ? "." : folder);
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored)) {
    const std::filesystem::path parent = path.parent_path();
    if (parent == path) break;
    path = parent.empty() ? "." : parent;
  }
  if (!std::filesystem::is_directory(path, ignored)) return path.string() + " is not a folder";
  // Permissions tell little: root may write what nobody can (/proc), a disk may be full or mounted read-only.
  try {
    AtomicFile((path / "heddle-write-test").string()).write("x");
  } catch (const IoError& error) {
    const std::string reason = error.what();
    return path.string() + reason.substr(error.path().size());
  }
  return {};
}

}  // namespace heddle::tools
