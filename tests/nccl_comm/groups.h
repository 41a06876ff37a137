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
};

// In-process, and Gloo where this build has it.
const std::vector<GroupKind>& group_kinds();

// Runs body on every rank of a new group, each on a thread.
void run_group(const GroupKind& kind, int world_size, const comm::CommunicatorOptions& options,
               const std::function<void(comm::Communicator&)>& body);

// The same; returns the message of the CommError that each rank met, empty if none.
std::vector<std::string> comm_errors(const GroupKind& kind, int world_size, const comm::CommunicatorOptions& options,
                                     const std::function<void(comm::Communicator&)>& body);

}  // namespace heddle::testing
