// Which communicator ranks in this process get.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/device/device.h"

namespace heddle::tools {

// The device of each of so many ranks, which share `devices` in turn.
std::vector<Device> devices_of_ranks(const std::vector<Device>& devices, int ranks);

// The ends of a group for ranks on these devices, by rank: of the first row of the list, best first, that fits them.
// Throws: CommError.
std::vector<std::unique_ptr<comm::Communicator>> make_rank_group(const std::vector<Device>& devices_by_rank,
                                                                 const comm::CommunicatorOptions& options);

}  // namespace heddle::tools
