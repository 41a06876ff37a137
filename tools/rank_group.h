// Which communicator ranks in this process get.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/device/device.h"

namespace heddle::tools {

// The device of each of so many ranks, which share `devices` in turn.
std::vector<Device> devices_of_ranks(const std::vector<Device>& devices, int ranks);

// What HEDDLE_NCCL_MEMORY says, before ranks connect by NCCL. Throws: UsageError.
void check_nccl_memory_setting();

// The ends of a group for ranks on these devices, by rank: of the first row of the list, best first, that fits them.
// Throws: CommError; as check_nccl_memory_setting().
std::vector<std::unique_ptr<comm::Communicator>> make_rank_group(const std::vector<Device>& devices_by_rank,
                                                                 const comm::CommunicatorOptions& options);

}  // namespace heddle::tools
