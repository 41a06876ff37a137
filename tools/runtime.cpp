#include "tools/runtime.h"

#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "engine/core/parallel.h"
#include "engine/device/device_runtime.h"
#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

Device choose_device(const std::string& name, std::vector<std::string>& notices) {
  if (name == "cpu") return Device::cpu();
  if (name == "auto") {
    notices.emplace_back("--device auto: this build has no GPU backend, so the CPU is used");
    return Device::cpu();
  }
  if (name == "cuda" || name.starts_with("cuda:")) {
    throw UsageError("--device " + name + ": this build has no CUDA backend; use --device cpu");
  }
  const std::vector<std::string> known = {"auto", "cpu", "cuda"};
  throw UsageError("--device is '" + name + "'; expected auto, cpu or cuda[:i,j]" + did_you_mean(name, known));
}

}  // namespace

Settings machine_settings(const ParsedArguments& arguments) {
  Settings settings;
  for (const char* name : {"device", "threads", "kernels"}) {
    if (arguments.has(name)) set_from_text(settings, *find_setting(name), arguments.get(name));
  }
  return settings;
}

Runtime start_runtime(const Settings& settings) {
  Runtime runtime;
  runtime.device = choose_device(settings.device, runtime.notices);
  if (settings.threads > 0) {
    set_num_threads(static_cast<int>(settings.threads));
    runtime.threads_source = "--threads";
  } else {
    runtime.threads_source = default_num_threads_source();
  }
  runtime.threads = num_threads();
  set_kernel_choice(kernel_choice_from(settings.kernels).value_or(KernelChoice::automatic));
  runtime.device_name = runtime_for(runtime.device).description();
  runtime.backend_name = backend_for(runtime.device).description();
  return runtime;
}

}  // namespace heddle::tools
