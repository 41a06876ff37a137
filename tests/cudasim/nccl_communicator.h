// Communicators of the simulated NCCL. Ranks are threads of one process (or one thread with a group of calls). Used by
// nccl.cpp, which makes them, and nccl_collectives.cpp, which sums and copies. Everything here needs the lock.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

struct Clique;

// One collective of a communicator. The operations of the ranks own it by its Collective.
struct CollectiveCall {
  struct Buffers {
    const void* send = nullptr;
    void* receive = nullptr;
    // What they were registered by when the call was made, null if they were not.
    void* send_registration = nullptr;
    void* receive_registration = nullptr;
  };
  CollectiveShape shape;
  std::shared_ptr<const Clique> clique;
  std::vector<Buffers> buffers;  // by rank
  // Ranks, and the threads they came from, in the order of their coming.
  std::vector<int> ranks;
  std::vector<std::thread::id> threads;
  std::weak_ptr<Collective> collective;
};

// Memory that a rank has registered: a buffer of its own, or its part of a window.
struct Registration {
  const char* data = nullptr;
  std::size_t nbytes = 0;
  // Of a window: its place among those of the communicator.
  std::optional<std::size_t> window{};
  // Where a window's handle goes once all ranks have come.
  void** pending = nullptr;
  bool contains(const void* begin, std::size_t n) const {
    const auto* first = static_cast<const char*>(begin);
    return data <= first && first + n <= data + nbytes;
  }
};

// All ranks of one communicator.
struct Clique {
  int size = 0;
  std::vector<int> devices;  // of the ranks that have come, -1 for the others
  int joined = 0;
  int alive = 0;
  // What each rank has registered, by handle. That of a rank that was aborted stays until no rank is alive: those of
  // one process share it.
  std::vector<std::map<void*, Registration>> registered{};
  // Those that not all ranks have queued yet, by their number.
  std::map<std::uint64_t, std::shared_ptr<CollectiveCall>> calls;
  bool complete() const { return joined == size; }
  // The windows of all ranks, in the order in which each rank registers them.
  struct WindowCall {
    std::size_t nbytes = 0;
    int joined = 0;
  };
  std::vector<WindowCall> windows;
};

}  // namespace cudasim

// The handle that NCCL leaves opaque.
struct ncclComm {
  std::shared_ptr<cudasim::Clique> clique;
  int rank = 0;
  int device = 0;
  std::uint64_t next_call = 0;
  bool blocking = true;
  std::size_t next_window = 0;
  // What has failed behind a call that has returned.
  ncclResult_t failed = ncclSuccess;
  std::map<void*, cudasim::Registration>& registered() const {
    return clique->registered[static_cast<std::size_t>(rank)];
  }
};

namespace cudasim {

constexpr const char* kCommunicator = "NCCL communicator";

// What a test asked the function to return; 0 unless it did.
ncclResult_t injected_nccl(const char* function);
// Of the library as it says; functions that came later end the process.
int nccl_version();
// Makes the handles of windows known that all ranks have registered. Returns whether there are no others.
bool finish_windows(ncclComm_t comm);
// The handle of the registration that a range of memory lies in, null if there is none.
void* find_registration(const ncclComm& comm, const void* data, std::size_t nbytes);
// Forgets those of all ranks.
void drop_registrations(Clique& clique);
// Keeps the text for ncclGetLastError() and returns the result.
ncclResult_t nccl_failure(ncclResult_t result, const std::string& text);
bool is_communicator(ncclComm_t comm);
// Whether the calling thread is between ncclGroupStart() and ncclGroupEnd().
bool in_group();
// Runs work now, or at the end of the group that the calling thread is in.
ncclResult_t now_or_at_group_end(std::function<ncclResult_t()> work);
// Since then the kernels that work in windows look at the flag by which a communicator is aborted.
constexpr int kWindowsEndSince = 22'907;
// Takes this rank's operations out of collectives that not all ranks have joined, so that nobody waits for them. Those
// that work in windows and do not look end the process.
void leave_collectives(const ncclComm& comm);
// The element type of an NCCL data type; false if the simulation does not have it.
bool find_nccl_type(ncclDataType_t data_type, ElementType* type);

}  // namespace cudasim
