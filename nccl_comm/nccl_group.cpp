// The way from libheddle to the NCCL communicator in the CUDA plugin.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "engine/core/error.h"
#include "engine/device/cuda_plugin.h"
#include "engine/device/cuda_plugin_abi.h"
#include "nccl_comm/inproc_communicator.h"
#include "nccl_comm/nccl_communicator.h"

namespace heddle::comm {
namespace {

int version_number() {
  if (!load_cuda_plugin()) return 0;
  return loaded_cuda_plugin()->nccl_version();
}

void require_nccl() {
  if (std::string missing = why_no_nccl(); !missing.empty()) throw NotSupported(missing);
}

}  // namespace

std::string why_no_nccl() {
  std::string reason;
  if (!load_cuda_plugin(&reason)) return "NCCL exchanges tensors of GPUs, and there is none: " + reason;
  if (version_number() > 0) return {};
  return "the CUDA plugin is built without NCCL (package: libnccl-dev; then build Heddle again, with -Dnccl=enabled)";
}

// 2.28.9 is 22809; before 2.9 there was one digit less.
std::string nccl_version() {
  const int number = version_number();
  return number == 0 ? std::string() : join_text(number / 10'000, ".", number / 100 % 100, ".", number % 100);
}

std::string nccl_memory() { return version_number() == 0 ? std::string() : loaded_cuda_plugin()->nccl_memory(); }

NcclMemoryUse nccl_memory_setting() {
  constexpr const char* kVariable = "HEDDLE_NCCL_MEMORY";
  const char* const value = std::getenv(kVariable);
  const std::string text = value == nullptr ? "ordinary" : value;
  if (text == "ordinary" || text.empty()) return NcclMemoryUse::ordinary;
  if (text == "registered") return NcclMemoryUse::registered;
  if (text == "windows") return NcclMemoryUse::windows;
  throw InvalidArgument(join_text(kVariable, " is '", text, "'; expected ordinary, registered or windows"));
}

CommunicatorOptions roll_call_options(const CommunicatorOptions& options) {
  using std::chrono::milliseconds;
  return {.timeout = std::clamp(options.timeout / 4, milliseconds(1), milliseconds(2000))};
}

std::unique_ptr<Communicator> make_nccl_communicator(NcclOptions options) {
  require_nccl();
  std::unique_ptr<Communicator> made;
  loaded_cuda_plugin()->make_nccl_communicators(&options, 1, &made);
  return made;
}

std::vector<std::unique_ptr<Communicator>> make_nccl_group(const std::vector<Device>& devices,
                                                           const CommunicatorOptions& options) {
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto first = std::find(devices.begin(), devices.end(), devices[rank]);
    HEDDLE_CHECK(first == devices.begin() + static_cast<std::ptrdiff_t>(rank), "NCCL wants a GPU for each rank: ranks ",
                 first - devices.begin(), " and ", rank, " are both on ", devices[rank]);
  }
  const auto world_size = static_cast<int>(devices.size());
  auto hosts = make_inproc_group(world_size, options);
  auto roll_call = make_inproc_group(world_size, roll_call_options(options));
  require_nccl();
  std::vector<NcclOptions> ranks;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    ranks.push_back({.device = devices[rank],
                     .communicator = options,
                     .hosts = std::move(hosts[rank]),
                     .roll_call = std::move(roll_call[rank])});
  }
  std::vector<std::unique_ptr<Communicator>> made(devices.size());
  loaded_cuda_plugin()->make_nccl_communicators(ranks.data(), ranks.size(), made.data());
  return made;
}

}  // namespace heddle::comm
