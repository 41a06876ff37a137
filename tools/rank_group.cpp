#include "tools/rank_group.h"

#include <algorithm>

#include "nccl_comm/inproc_communicator.h"
#include "nccl_comm/nccl_communicator.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

using Devices = std::vector<Device>;
using Group = std::vector<std::unique_ptr<comm::Communicator>>;

// NCCL refuses two ranks on one GPU.
bool each_has_a_gpu(const Devices& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].is_cpu() || std::count(devices.begin(), devices.end(), devices[i]) != 1) return false;
  }
  return true;
}

struct Row {
  bool (*fits)(const Devices& by_rank);
  Group (*make)(const Devices& by_rank, const comm::CommunicatorOptions& options);
};

const Row kRows[] = {
    {[](const Devices& by_rank) { return each_has_a_gpu(by_rank) && comm::why_no_nccl().empty(); },
     [](const Devices& by_rank, const comm::CommunicatorOptions& options) {
       check_nccl_memory_setting();
       return comm::make_nccl_group(by_rank, options);
     }},
    {[](const Devices&) { return true; },
     [](const Devices& by_rank, const comm::CommunicatorOptions& options) {
       return comm::make_inproc_group(static_cast<int>(by_rank.size()), options);
     }},
};

}  // namespace

Devices devices_of_ranks(const Devices& devices, int ranks) {
  Devices by_rank;
  for (int rank = 0; rank < ranks; ++rank) by_rank.push_back(devices[static_cast<std::size_t>(rank) % devices.size()]);
  return by_rank;
}

void check_nccl_memory_setting() {
  try {
    comm::nccl_memory_setting();
  } catch (const InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

Group make_rank_group(const Devices& devices_by_rank, const comm::CommunicatorOptions& options) {
  const Row* row = kRows;
  while (!row->fits(devices_by_rank)) ++row;
  return row->make(devices_by_rank, options);
}

}  // namespace heddle::tools
