// Chooses device and threads and makes the engine use them: the only place where the program is put together.
#pragma once

#include <string>
#include <vector>

#include "engine/device/device.h"
#include "tools/command_line.h"
#include "tools/settings.h"

namespace heddle::tools {

struct Runtime {
  Device device;
  std::vector<Device> devices;  // of the ranks in this process, taken in turn; the first one is `device`
  std::string device_name;      // hardware
  bool simulated = false;       // no hardware, only an imitation for tests
  std::string backend_name;     // libraries that do the maths
  int threads = 1;
  std::string threads_source;        // why so many
  std::vector<std::string> notices;  // one line each, for the user
};

// Settings with the flags --device, --threads and --kernels (those that were given) of a command that has no others of
// the table. Throws: UsageError.
Settings machine_settings(const ParsedArguments& arguments);

// The same for a command that uses one device. Throws: UsageError, also for a list of GPUs.
Settings one_device_settings(const ParsedArguments& arguments);

// Follows --device, --threads and --kernels, for settings.ranks ranks in this process. Throws: UsageError when the
// device cannot be used, with the cause.
Runtime start_runtime(const Settings& settings);

// The GPUs of "cuda", "cuda:i" or "cuda:i,j": of as many ranks as there may be in this process. "cuda" takes a GPU for
// each, as many as there are. Throws: UsageError when one of them cannot be used, with the cause.
std::vector<Device> choose_cuda_devices(const std::string& name, int ranks);
// The same, of which it only looks whether there are so many: a GPU that is used keeps memory of this process.
std::vector<Device> named_cuda_devices(const std::string& name, int ranks);
// Throws: UsageError with the cause if the GPU, one of those that `name` stands for, cannot be used.
void require_usable(Device device, const std::string& name);

}  // namespace heddle::tools
