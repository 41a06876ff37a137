#include "tools/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "engine/backend/math_settings.h"
#include "engine/core/parallel.h"
#include "engine/device/cuda_plugin.h"
#include "engine/device/device_runtime.h"
#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

// Why a GPU cannot be used, as a phrase; empty if it can.
std::string why_not_usable(Device device) {
  try {
    runtime_for(device).default_stream();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// The best device for somebody who has not chosen: a GPU that can be used, else the CPU and the reason.
Device choose_best_device(std::vector<std::string>& notices) {
  std::string reason = "no NVIDIA driver is installed";
  if (has_cuda_driver() && load_cuda_plugin(&reason)) {
    for (int i = 0; i < cuda_plugin_info().device_count; ++i) {
      const Device device = Device::cuda(i);
      reason = runtime_for(device).is_simulated() ? "the CUDA of this build is simulated, for tests"
                                                  : why_not_usable(device);
      if (reason.empty()) return device;
    }
  }
  notices.push_back("--device auto: " + reason + ", so the CPU is used");
  return Device::cpu();
}

// The numbers behind "cuda:". Throws: UsageError unless they are a list of different numbers.
std::vector<int> cuda_indices(const std::string& name) {
  const std::string list = name.substr(std::string("cuda:").size());
  std::vector<int> indices;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (true) {
    int index = -1;
    const auto [behind, error] = std::from_chars(at, end, index);
    const bool more = behind != end && *behind == ',';
    if (error != std::errc{} || index < 0 || (behind != end && !more)) {
      throw UsageError("--device is '" + name +
                       "'; expected cuda, cuda:i with the number of a GPU, like cuda:0, or cuda:i,j with several");
    }
    if (std::find(indices.begin(), indices.end(), index) != indices.end()) {
      throw UsageError(fmt::format("--device is '{}', which names cuda:{} twice", name, index));
    }
    indices.push_back(index);
    if (!more) return indices;
    at = behind + 1;
  }
}

std::vector<Device> choose_devices(const Settings& settings, std::vector<std::string>& notices) {
  const std::string& name = settings.device;
  if (name == "cpu") return {Device::cpu()};
  if (name == "auto") return {choose_best_device(notices)};
  if (name == "cuda" || name.starts_with("cuda:")) return choose_cuda_devices(name, static_cast<int>(settings.ranks));
  const std::vector<std::string> known = {"auto", "cpu", "cuda"};
  throw UsageError("--device is '" + name + "'; expected auto, cpu or cuda[:i,j]" + did_you_mean(name, known));
}

}  // namespace

void require_usable(Device device, const std::string& name) {
  const std::string reason = why_not_usable(device);
  if (!reason.empty()) throw UsageError("--device " + name + ": " + reason);
}

std::vector<Device> choose_cuda_devices(const std::string& name, int ranks) {
  std::vector<Device> devices = named_cuda_devices(name, ranks);
  for (const Device device : devices) require_usable(device, name);
  return devices;
}

std::vector<Device> named_cuda_devices(const std::string& name, int ranks) {
  std::vector<int> indices = name == "cuda" ? std::vector<int>{} : cuda_indices(name);
  if (indices.size() > static_cast<std::size_t>(ranks)) {
    throw UsageError(
        fmt::format("--device {} names {} GPUs, and there {}: each rank of heddle train has one; give --ranks {}", name,
                    indices.size(), ranks == 1 ? "is 1 rank" : fmt::format("are {} ranks", ranks), indices.size()));
  }
  std::string reason;
  if (!load_cuda_plugin(&reason)) throw UsageError("--device " + name + ": " + reason + "; --device cpu works");
  const int count = cuda_plugin_info().device_count;
  for (int i = 0; name == "cuda" && i < std::min(ranks, count); ++i) indices.push_back(i);
  std::vector<Device> devices;
  for (const int index : indices) {
    if (index >= count) {
      throw UsageError(fmt::format("--device {}: there {} here, cuda:0{}", name,
                                   count == 1 ? "is 1 GPU" : fmt::format("are {} GPUs", count),
                                   count == 1 ? "" : fmt::format(" to cuda:{}", count - 1)));
    }
    devices.push_back(Device::cuda(index));
  }
  return devices;
}

Settings machine_settings(const ParsedArguments& arguments) {
  Settings settings;
  for (const char* name : {"device", "threads", "kernels"}) {
    if (arguments.has(name)) set_from_text(settings, *find_setting(name), arguments.get(name));
  }
  return settings;
}

Settings one_device_settings(const ParsedArguments& arguments) {
  Settings settings = machine_settings(arguments);
  if (settings.device.find(',') != std::string::npos) {
    throw UsageError(
        fmt::format("--device is '{}'; this command uses one device: auto, cpu or cuda[:i]", settings.device));
  }
  return settings;
}

Runtime start_runtime(const Settings& settings) {
  Runtime runtime;
  runtime.devices = choose_devices(settings, runtime.notices);
  runtime.device = runtime.devices.front();
  if (settings.precision == "tf32" && runtime.device.is_cpu()) {
    throw UsageError(fmt::format("--precision tf32 is a GPU's: the CPU{} computes in fp32; leave it out",
                                 settings.device == "cpu" ? "" : ", which was chosen here,"));
  }
  if (settings.threads > 0) {
    set_num_threads(static_cast<int>(settings.threads));
    runtime.threads_source = "--threads";
  } else {
    runtime.threads_source = default_num_threads_source();
  }
  runtime.threads = num_threads();
  set_kernel_choice(kernel_choice_from(settings.kernels).value_or(KernelChoice::automatic));
  set_math_settings({.f32_products = settings.precision == "tf32" ? F32Products::tf32 : F32Products::exact,
                     .deterministic = settings.deterministic || settings.reproducible,
                     .time_algorithms = settings.time_algorithms});
  runtime.device_name = runtime_for(runtime.device).description();
  runtime.simulated = runtime_for(runtime.device).is_simulated();
  runtime.backend_name = backend_for(runtime.device).description();
  return runtime;
}

}  // namespace heddle::tools
