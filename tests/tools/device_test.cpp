// `--device`: which device a run uses, and what a user reads where it cannot be used. Each call is a process of its
// own, since a program looks for the plugin once.
#include <algorithm>

#include "engine/core/version.h"
#include "engine/device/cuda_plugin.h"
#include "engine/device/cuda_plugin_abi.h"
#include "engine/device/device_runtime.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"

namespace heddle::test {
namespace {

const std::string kKind = HEDDLE_CUDA_KIND;  // disabled, enabled or sim

// `heddle train --device cuda` with the plugin path; nothing of a run is left behind.
std::string refusal(const std::string& plugin_path, const std::string& device = "cuda") {
  const TempFolder folder;
  const ProcessResult result = heddle({"train", "--dataset", "synthetic", "--out", folder / "run", "--device", device},
                                      {.environment = {{"HEDDLE_PLUGIN_PATH", plugin_path}}});
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK(folder.num_files() == 0);
  return result.err;
}

}  // namespace

TEST_CASE("a plugin of another ABI or version is refused with both numbers") {
  const std::string abi = refusal(OTHER_ABI_PLUGIN);
  INFO(abi);
  CHECK(contains(abi, OTHER_ABI_PLUGIN));
  CHECK(contains(abi, "ABI 999"));
  CHECK(contains(abi, "this library has " + std::to_string(kCudaPluginAbi)));
  const std::string other = refusal(OTHER_VERSION_PLUGIN);
  INFO(other);
  CHECK(contains(other, "version 0.0.0-other"));
  CHECK(contains(other, HEDDLE_VERSION_STRING));
}

TEST_CASE("a file that is no plugin is named with what is wrong with it") {
  CHECK(contains(refusal(NO_ENTRY_PLUGIN), "has no function heddle_cuda_plugin"));
  const TempFolder folder;
  put_file(folder / "libheddle_cuda.so", "not a library");
  const std::string text = refusal(folder.path());
  INFO(text);
  CHECK(contains(text, "cannot be loaded"));
  CHECK(contains(text, folder.path()));
}

TEST_CASE("a plugin that finds no GPU passes on the reason") {
  CHECK(contains(refusal(NO_DEVICE_PLUGIN), "the driver of this test offers no GPU"));
  // Of several places the first that has the file counts.
  CHECK(contains(refusal("/nowhere:" NO_DEVICE_PLUGIN ":" OTHER_ABI_PLUGIN), "the driver of this test offers no GPU"));
}

TEST_CASE("auto trains on the CPU where there is no GPU, with one notice") {
  if (is_registered(Device::cuda(0)) && !runtime_for(Device::cuda(0)).is_simulated()) {
    WARN("this machine has a GPU: auto takes it");
    return;
  }
  const TempFolder folder;
  write_small_dataset(folder.path(), 64, 32);
  std::vector<std::string> arguments = small_training(folder.path(), folder / "auto", {"--epochs", "1"});
  const ProcessResult result = heddle(arguments);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "--device auto: "));
  CHECK(contains(result.out, "so the CPU is used"));
  CHECK(json_file(folder / "auto/run.json")["device"]["name"] == "cpu");
  CHECK(json_file(folder / "auto/run.json")["device"]["simulated"] == false);
  CHECK(heddle(small_training(folder.path(), folder / "cpu", {"--epochs", "1", "--device", "cpu"})).exit_code == 0);
  CHECK(metrics_of(folder / "auto") == metrics_of(folder / "cpu"));
}

TEST_CASE("devices that do not exist and lists of devices are refused") {
  CHECK(contains(refusal("", "cuda:0,1"), "names 2 GPUs, and there is 1 rank"));
  CHECK(contains(refusal("", "cuda:0,"), "expected cuda, cuda:i"));
  CHECK(contains(refusal("", "cuda:1,1"), "names cuda:1 twice"));
  CHECK(contains(refusal("", "cuda:x"), "expected cuda, cuda:i"));
  CHECK(contains(refusal("", "cuda:"), "expected cuda, cuda:i"));
  CHECK(contains(refusal("", "cuda0"), "expected auto, cpu or cuda"));
  if (kKind == "sim") CHECK(contains(refusal("", "cuda:99"), "cuda:0 to cuda:"));
}

TEST_CASE("commands of one device refuse a list, and advise nothing that they do not have") {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"eval", "--checkpoint", "x"},
                                                  std::vector<std::string>{"predict", "--checkpoint", "x", "y"},
                                                  std::vector<std::string>{"bench", "conv2d_forward"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--device", "cuda:0,1"});
    const ProcessResult result = heddle(arguments);
    INFO(command[0] << result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "this command uses one device: auto, cpu or cuda[:i]"));
  }
}

TEST_CASE("without plugin or driver --device cuda says which is missing") {
  if (kKind == "disabled") {
    CHECK(contains(refusal(""), "no CUDA plugin"));
  } else if (kKind == "enabled" && !has_cuda_driver()) {
    CHECK(contains(refusal(""), "no NVIDIA driver is installed"));
  } else {
    WARN("this build has a GPU to use");
  }
}

TEST_CASE("the doctor tells whether there is a plugin and what it finds") {
  const ProcessResult broken = heddle({"doctor"}, {.environment = {{"HEDDLE_PLUGIN_PATH", NO_DEVICE_PLUGIN}}});
  CHECK(contains(broken.out, NO_DEVICE_PLUGIN));
  CHECK(contains(broken.out, "the driver of this test offers no GPU"));
  const ProcessResult plain = heddle({"doctor"});
  if (kKind == "disabled") CHECK(contains(plain.out, "not in this installation"));
  if (kKind == "sim") {
    CHECK(contains(plain.out, "libheddle_cuda.so"));
    CHECK(contains(plain.out, "cuda:0"));
    CHECK(contains(plain.out, "simulated"));
    CHECK(contains(plain.out, "NCCL"));
  }
}

}  // namespace heddle::test
