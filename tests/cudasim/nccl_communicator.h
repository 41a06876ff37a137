// Communicators of the simulated NCCL. Ranks are threads of one process (or one thread with a group of calls). Used by
// nccl.cpp, which makes them, and nccl_collectives.cpp, which sums and copies. Everything here needs the lock.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cudasim/internal.h"
#include "tests/cudasim/numbers.h"

namespace cudasim {

enum class CollectiveKind { all_reduce, broadcast, all_gather, reduce_scatter };

// What all ranks must agree on.
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::all_reduce;
  // As the caller gives it: of the result of a reduce-scatter, of the input of an all-gather.
  std::int64_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  bool operator==(const CollectiveShape&) const = default;
};

// One collective of a communicator. The operations of the ranks own it by its Collective.
struct CollectiveCall {
  struct Buffers {
    const void* send = nullptr;
    void* receive = nullptr;
  };
  CollectiveShape shape;
  std::vector<Buffers> buffers;  // by rank
  // Ranks, and the threads they came from, in the order of their coming.
  std::vector<int> ranks;
  std::vector<std::thread::id> threads;
  std::weak_ptr<Collective> collective;
};

// All ranks of one communicator.
struct Clique {
  int size = 0;
  std::vector<int> devices;  // of the ranks that have come, -1 for the others
  int joined = 0;
  // Those that not all ranks have queued yet, by their number.
  std::map<std::uint64_t, std::shared_ptr<CollectiveCall>> calls;
  bool complete() const { return joined == size; }
};

}  // namespace cudasim

// The handle that NCCL leaves opaque.
struct ncclComm {
  std::shared_ptr<cudasim::Clique> clique;
  int rank = 0;
  int device = 0;
  std::uint64_t next_call = 0;
  bool aborted = false;
  // Buffers and windows that are registered.
  std::vector<void*> registered;
};

namespace cudasim {

constexpr const char* kCommunicator = "NCCL communicator";

// Keeps the text for ncclGetLastError() and returns the result.
ncclResult_t nccl_failure(ncclResult_t result, const std::string& text);
bool is_communicator(ncclComm_t comm);
// Whether the calling thread is between ncclGroupStart() and ncclGroupEnd().
bool in_group();
// Runs work now, or at the end of the group that the calling thread is in.
ncclResult_t now_or_at_group_end(std::function<ncclResult_t()> work);
// Takes this rank's operations out of collectives that not all ranks have joined, so that nobody waits for them.
void leave_collectives(const ncclComm& comm);
// The element type of an NCCL data type; false if the simulation does not have it.
bool find_nccl_type(ncclDataType_t data_type, ElementType* type);

}  // namespace cudasim
