#include "tools/bench/machine.h"

#include <fmt/format.h>

#include "engine/core/version.h"
#include "engine/device/device_runtime.h"
#include "tools/system_info.h"

namespace heddle::tools::bench {

Json describe_machine(const Runtime& runtime) {
#if defined(__clang__)
  const std::string compiler = fmt::format("clang {}", __clang_version__);
#else
  const std::string compiler = fmt::format("g++ {}", __VERSION__);
#endif
  Json machine;
  machine["heddle"] = fmt::format("{} ({})", version(), compiler);
  machine["device"] = fmt::format("{}: {}", runtime.device.to_string(), runtime.device_name);
  machine["backend"] = runtime.backend_name;
  for (const auto& [name, version_text] : runtime_for(runtime.device).properties().versions) {
    machine[name] = version_text;
  }
  machine["threads"] = fmt::format("{} ({})", runtime.threads, runtime.threads_source);
  machine["host"] = fmt::format("{}, {}, {}", host_name(), operating_system(), cpu_info().model);
  return machine;
}

std::vector<std::string> machine_lines(const Json& machine) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : machine.items()) {
    lines.push_back(fmt::format("{:<15} {}", name, value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return lines;
}

}  // namespace heddle::tools::bench
