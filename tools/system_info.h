// Facts about the machine, for `heddle doctor` and run.json. Everything is read where the system publishes it; what
// cannot be read is left empty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::tools {

struct CpuInfo {
  std::string model;
  std::vector<std::string> features;  // of the instruction sets that the engine can use
  int online = 0;                     // processors of the machine
  int allowed = 0;                    // of them, in this process's affinity mask
};

struct MemoryState {
  std::uint64_t total_nbytes = 0;
  std::uint64_t available_nbytes = 0;
  std::uint64_t limit_nbytes = 0;  // of the container; 0: none
};

struct NvidiaInfo {
  bool device_files = false;    // /dev/nvidia0 or /dev/dxg
  std::string driver_version;   // of the kernel module
  bool driver_library = false;  // libcuda.so.1 can be loaded
  std::string compiler;         // path of nvcc
};

CpuInfo cpu_info();
MemoryState memory_state();
// Largest resident set of this process so far, in bytes; 0 if unknown.
std::uint64_t peak_resident_nbytes();
NvidiaInfo nvidia_info();
// "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
std::string operating_system();
std::string host_name();

// "1.5 GiB"
std::string format_nbytes(std::uint64_t nbytes);

// Whether files can be made in a folder, or in the nearest existing one above it: a file is written there and removed.
// The reason if not, else empty.
std::string why_not_writable(const std::string& folder);

}  // namespace heddle::tools
