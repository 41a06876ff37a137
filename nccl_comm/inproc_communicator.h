// Ranks that are threads of one process: on the CPU, or on one or several devices; several on one GPU too, which NCCL
// refuses. Exact, with rank-order sums, and without any library.
#pragma once

#include <memory>
#include <vector>

#include <heddle/comm/communicator.h>

namespace heddle::comm {

// Ends of a group of world_size ranks, one to be moved into each rank's thread. A rank whose end is destroyed has left:
// ranks that wait for it throw at once. Sums are added in rank order by one rank per element, so the bits are the same
// on all ranks and from run to run. A call blocks its thread until all ranks have made it; on a GPU only the meeting of
// the host threads blocks, not the work, which is queued (and cannot be part of a recorded step). Throws:
// InvalidArgument unless world_size >= 1 and the timeout is above 0.
std::vector<std::unique_ptr<Communicator>> make_inproc_group(int world_size, const CommunicatorOptions& options = {});

}  // namespace heddle::comm
