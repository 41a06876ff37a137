// How ranks that share nothing but a store find each other, whatever an earlier run has left in it.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "nccl_comm/store.h"

namespace heddle::comm {

struct MeetOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{60'000};
  // Asked every few milliseconds while it waits; true ends the wait. Empty: never.
  std::function<bool()> cancelled = {};
};

// Returns when all ranks are there, with a name that this group alone has and that all its ranks get: what they write
// under it nobody else reads. Throws: CommError when the deadline passes, naming the ranks that are missing, when it is
// cancelled, and when the ranks do not agree on their number; InvalidArgument unless 0 <= rank < world_size.
std::string meet(Store& store, const MeetOptions& options);

}  // namespace heddle::comm
