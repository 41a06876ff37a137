// Runs the ranks of one process as threads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <heddle/comm/communicator.h>

namespace heddle::comm {

// Runs body(communicator) on one thread a rank, each with its share of num_threads() (at least one), and returns when
// all have ended. A rank that throws ends the group, so that the others do not wait for it; what it threw, the first if
// there are several, is thrown again here. Signals go to the calling thread. Throws: InvalidArgument unless
// world_size >= 1.
void run_rank_threads(int world_size, const CommunicatorOptions& options,
                      const std::function<void(Communicator&)>& body);
// The same for the ends of a group that exists, by rank: at least one.
void run_rank_threads(std::vector<std::unique_ptr<Communicator>> ends, const std::function<void(Communicator&)>& body);

}  // namespace heddle::comm
