// The kinds of groups that one contract is tested on, each with its ranks as threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/device/device.h"

namespace heddle::testing {

struct GroupKind {
  std::string name;
  std::vector<Device> devices;  // whose tensors it moves
  // The ends of a new group, by rank.
  std::function<std::vector<std::unique_ptr<comm::Communicator>>(int world_size, const comm::CommunicatorOptions&)>
      make;
  int most_ranks = 1024;
  // Each rank has a GPU of its own, for which `devices` has the first one.
  bool gpu_each = false;
  // A library adds in an order of its own, and may round bf16 after each addition.
  bool adds_in_rank_order = true;

  // Of a rank, where `device` is one of devices.
  Device device_of(int rank, Device device) const { return gpu_each && !device.is_cpu() ? Device::cuda(rank) : device; }
};

// In-process, and Gloo and NCCL where this build and machine have them.
const std::vector<GroupKind>& group_kinds();

// Runs body on every rank of a new group, each on a thread.
void run_group(const GroupKind& kind, int world_size, const comm::CommunicatorOptions& options,
               const std::function<void(comm::Communicator&)>& body);

// The same; returns the message of the CommError that each rank met, empty if none.
std::vector<std::string> comm_errors(const GroupKind& kind, int world_size, const comm::CommunicatorOptions& options,
                                     const std::function<void(comm::Communicator&)>& body);

}  // namespace heddle::testing
