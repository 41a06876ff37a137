// `heddle doctor`: what this machine has, what the build can use, and what is wrong.
#include <fmt/format.h>
#include <zlib.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include "datasets/download.h"
#include "datasets/fashion_mnist.h"
#include "datasets/fetch.h"
#include "datasets/image_file.h"
#include "engine/backend/backend.h"
#include "engine/core/parallel.h"
#include "engine/core/version.h"
#include "engine/device/cuda_plugin.h"
#include "engine/device/device_runtime.h"
#include "models/model_list.h"
#include "nccl_comm/nccl_communicator.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/suggest.h"
#include "tools/system_info.h"

namespace heddle::tools {
namespace {

// LeNet on Fashion-MNIST needs 200 MB; less than this free makes trouble likely.
constexpr std::uint64_t kComfortableNbytes = std::uint64_t{512} << 20;

// Lines "name   value", and what was found wrong on the way.
class Report {
 public:
  explicit Report(Console& out) : out_(out) {}
  void section(const char* title) { out_.line(fmt::format("{}", title)); }
  void item(std::string_view name, std::string_view value) { out_.line(fmt::format("  {:<16}{}", name, value)); }
  // Training is not possible.
  void problem(const std::string& text) { problems_.push_back(text); }
  // Training is possible; something is slower or missing.
  void advice(const std::string& text) { advice_.push_back(text); }
  int finish();

 private:
  Console& out_;
  std::vector<std::string> problems_, advice_;
};

int Report::finish() {
  section("Result");
  for (const std::string& text : problems_) out_.line("  problem: " + text);
  for (const std::string& text : advice_) out_.line("  note: " + text);
  if (problems_.empty()) {
    out_.line("  ready: heddle train --model lenet --preset best");
    return exit_code::kDone;
  }
  out_.line("  not ready to train on Fashion-MNIST");
  return exit_code::kFailed;
}

std::string yes_no(bool yes) { return yes ? "yes" : "no"; }

void report_build(Report& report) {
  report.section("Build");
#if defined(__clang__)
  report.item("heddle", fmt::format("{} (clang {})", version(), __clang_version__));
#else
  report.item("heddle", fmt::format("{} (g++ {})", version(), __VERSION__));
#endif
#if defined(NDEBUG)
  report.item("assertions", "off");
#else
  report.item("assertions", "on");
#endif
  report.item("CPU backend", backend_for(Device::cpu()).description());
  const CudaPluginInfo& plugin = cuda_plugin_info();
  report.item("CUDA plugin", plugin.path.empty() ? "not in this installation" : plugin.path);
  if (!plugin.built_for.empty()) report.item("GPU kernels for", plugin.built_for);
  report.item("zlib", fmt::format("{} (built with {})", ::zlibVersion(), ZLIB_VERSION));
  report.item("PNG images", yes_no(datasets::png_supported()));
  report.item("headers",
              fmt::format("fmt {}.{}.{}, CLI11 {}, nlohmann-json {}.{}.{}", FMT_VERSION / 10000,
                          FMT_VERSION / 100 % 100, FMT_VERSION % 100, CLI11_VERSION, NLOHMANN_JSON_VERSION_MAJOR,
                          NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH));
  std::string models;
  for (const models::ModelInfo& info : models::model_list())
    models += (models.empty() ? "" : ", ") + std::string(info.name);
  report.item("models", models);
}

void report_machine(Report& report) {
  const CpuInfo cpu = cpu_info();
  const MemoryState memory = memory_state();
  report.section("Machine");
  report.item("system", operating_system());
  report.item("CPU", cpu.model);
  report.item("features", join_names(cpu.features));
  report.item("processors", fmt::format("{} online, {} allowed for this process", cpu.online, cpu.allowed));
  report.item("threads", fmt::format("{} ({})", num_threads(), default_num_threads_source()));
  report.item("memory", fmt::format("{} total, {} available", format_nbytes(memory.total_nbytes),
                                    format_nbytes(memory.available_nbytes)));
  if (memory.limit_nbytes > 0) report.item("memory limit", format_nbytes(memory.limit_nbytes) + " (container)");
  if (num_threads() > cpu.allowed) {
    report.advice(
        fmt::format("{} threads ({}) on {} processors are slower than {}; unset the variable or use --threads",
                    num_threads(), default_num_threads_source(), cpu.allowed, cpu.allowed));
  }
  if (memory.available_nbytes > 0 && memory.available_nbytes < kComfortableNbytes) {
    report.advice("little memory is free (" + format_nbytes(memory.available_nbytes) +
                  "); close other programs, or use a smaller --batch-size");
  }
}

void report_device(Report& report, Device device) {
  try {
    DeviceRuntime& runtime = runtime_for(device);
    const DeviceProperties properties = runtime.properties();
    report.item(
        device.to_string(),
        fmt::format("{}{}, capability {}, {}, {} multiprocessors", properties.name,
                    runtime.is_simulated() ? " (simulated: for tests, chosen only by --device cuda)" : "",
                    properties.capability, format_nbytes(properties.memory_nbytes), properties.multiprocessors));
    std::string versions;
    for (const auto& [library, version] : properties.versions) {
      versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", library, version);
    }
    report.item("", versions);
    runtime.default_stream();  // finds out whether there are kernels for it
  } catch (const Error& error) {
    report.advice(fmt::format("{} cannot be used: {}", device.to_string(), error.what()));
  }
}

void report_gpu(Report& report) {
  const NvidiaInfo gpu = nvidia_info();
  report.section("GPU");
  report.item("device files", yes_no(gpu.device_files));
  report.item("kernel driver", gpu.driver_version.empty() ? "no" : gpu.driver_version);
  report.item("libcuda.so.1", gpu.driver_library ? "can be loaded" : "not found");
  report.item("nvcc", gpu.compiler.empty() ? "not found" : gpu.compiler);
  const CudaPluginInfo& plugin = cuda_plugin_info();
  report.item("usable GPUs", std::to_string(plugin.device_count));
  for (int i = 0; i < plugin.device_count; ++i) report_device(report, Device::cuda(i));
  if (plugin.device_count > 0) {
    const std::string nccl = comm::nccl_version();
    report.item("NCCL",
                nccl.empty() ? "not in this build: ranks with a GPU each exchange through the host's threads" : nccl);
    if (!nccl.empty()) report.item("NCCL sends from", comm::nccl_memory());
    return;
  }
  report.item("why none", plugin.problem);
  if (gpu.device_files || !gpu.driver_version.empty()) {
    report.advice("there is an NVIDIA GPU, but training uses the CPU: " + plugin.problem);
  }
}

void report_data(Report& report) {
  report.section("Fashion-MNIST");
  try {
    const datasets::IdxFileSet files = datasets::find_fashion_mnist();
    report.item("found in", files.folder);
    for (const datasets::VerifiedFile& file : datasets::verify_fashion_mnist(files.folder)) {
      if (file.ok) continue;
      report.problem(
          fmt::format("{}: {}; get a good copy with heddle data fetch, or give another folder with --data-dir",
                      file.path, file.problem));
    }
  } catch (const IoError& error) {
    report.item("found in", "nowhere");
    report.problem(error.what());
  }
  const std::string cache = datasets::fashion_mnist_cache_folder();
  const std::string reason = why_not_writable(cache);
  report.item("cache folder", fmt::format("{} ({})", cache, reason.empty() ? "can be written" : reason));
  const std::string program = datasets::find_download_program();
  report.item("download with", program.empty() ? "neither curl nor wget is installed" : program);
  if (!reason.empty()) report.advice("heddle data fetch needs a folder that can be written: use --data-dir DIR");
  if (program.empty()) report.advice("heddle data fetch needs curl or wget");
}

}  // namespace

int run_doctor(CommandContext& context) {
  const CommandSpec spec{.name = "heddle doctor",
                         .summary = "what this machine has, what the build can use, and what is wrong",
                         .example = "heddle doctor"};
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  Report report(context.out);
  report_build(report);
  report_machine(report);
  report_gpu(report);
  report_data(report);
  const std::string here = why_not_writable("runs");
  if (!here.empty()) report.advice("runs cannot be written here (" + here + "); use --out DIR");
  return report.finish();
}

}  // namespace heddle::tools
