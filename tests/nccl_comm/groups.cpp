#include "tests/nccl_comm/groups.h"

#include "engine/device/cuda_plugin.h"
#include "nccl_comm/gloo_communicator.h"
#include "nccl_comm/inproc_communicator.h"
#include "nccl_comm/nccl_communicator.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/devices.h"

namespace heddle::testing {

const std::vector<GroupKind>& group_kinds() {
  static const std::vector<GroupKind> kinds = [] {
    std::vector<GroupKind> all{{"in-process", test_devices(), comm::make_inproc_group}};
    if (comm::why_no_gloo().empty()) all.push_back({"gloo", {Device::cpu()}, comm::make_gloo_group});
    if (!comm::why_no_nccl().empty()) return all;
    const auto make_nccl = [](int world_size, const comm::CommunicatorOptions& options) {
      std::vector<Device> devices;
      for (int rank = 0; rank < world_size; ++rank) devices.push_back(Device::cuda(rank));
      return comm::make_nccl_group(devices, options);
    };
    all.push_back({.name = "nccl",
                   .devices = test_devices(),
                   .make = make_nccl,
                   .most_ranks = cuda_plugin_info().device_count,
                   .gpu_each = true,
                   .adds_in_rank_order = runtime_for(Device::cuda(0)).is_simulated()});
    return all;
  }();
  return kinds;
}

void run_group(const GroupKind& kind, int world_size, const comm::CommunicatorOptions& options,
               const std::function<void(comm::Communicator&)>& body) {
  comm::run_rank_threads(kind.make(world_size, options), body);
}

std::vector<std::string> comm_errors(const GroupKind& kind, int world_size, const comm::CommunicatorOptions& options,
                                     const std::function<void(comm::Communicator&)>& body) {
  RankResults results(world_size);
  run_group(kind, world_size, options, noting_errors(results, body));
  return results.texts();
}

}  // namespace heddle::testing
