// The simulated NCCL: communicators, groups and texts. The collectives are in nccl_collectives.cpp, memory and windows
// in nccl_memory.cpp.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "tests/cudasim/library_face.h"
#include "tests/cudasim/lock.h"
#include "tests/cudasim/nccl_communicator.h"

namespace cudasim {
namespace {

std::string last_text;
std::map<std::string, std::shared_ptr<Clique>>& cliques() {
  static std::map<std::string, std::shared_ptr<Clique>> by_id;
  return by_id;
}

thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> group_work;

ncclResult_t check_device(int device) {
  if (device < 0 || device >= device_count() || sticky_error(device) != cudaSuccess) {
    return nccl_failure(ncclUnhandledCudaError, "the device cannot be used");
  }
  return ncclSuccess;
}

// Adds a rank; the communicator is ready when all have come.
ncclResult_t join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, int device, bool blocking) {
  if (comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks) {
    return nccl_failure(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  }
  if (const ncclResult_t result = check_device(device)) return result;
  std::shared_ptr<Clique>& clique = cliques()[std::string(id.internal, sizeof id.internal)];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->size = ranks;
    clique->devices.assign(static_cast<std::size_t>(ranks), -1);
    clique->registered.resize(static_cast<std::size_t>(ranks));
  }
  if (clique->size != ranks) return nccl_failure(ncclInvalidArgument, "ranks disagree about their number");
  if (clique->devices[static_cast<std::size_t>(rank)] != -1) {
    return nccl_failure(ncclInvalidUsage, "two ranks have the number " + std::to_string(rank));
  }
  if (std::count(clique->devices.begin(), clique->devices.end(), device) != 0) {
    return nccl_failure(ncclInvalidUsage, "duplicate GPU: two ranks use device " + std::to_string(device));
  }
  clique->devices[static_cast<std::size_t>(rank)] = device;
  ++clique->joined;
  ++clique->alive;
  auto* made = new ncclComm{.clique = clique, .rank = rank, .device = device, .blocking = blocking};
  handle_created(kCommunicator, made);
  *comm = made;
  if (clique->complete()) cliques().erase(std::string(id.internal, sizeof id.internal));
  notify_all();
  return ncclSuccess;
}

ncclResult_t wait_for_ranks(const Clique& clique) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(policy().peer_deadline_ms);
  while (!clique.complete()) {
    if (std::chrono::steady_clock::now() > deadline) {
      die("ncclCommInitRank: %d of %d ranks came, the others did not within %d ms: on a real machine this hangs",
          clique.joined, clique.size, policy().peer_deadline_ms);
    }
    wait_for_notification(10);
  }
  return ncclSuccess;
}

ncclResult_t init_rank(const char* function, ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank,
                       bool blocking) {
  const Lock lock;
  start_machine();
  if (const ncclResult_t result = injected_nccl(function)) return nccl_failure(result, "asked for");
  const ncclResult_t result = join(comm, ranks, id, rank, current_device(), blocking);
  if (result != ncclSuccess) return result;
  const std::shared_ptr<Clique> clique = (*comm)->clique;
  if (!blocking) return clique->complete() ? ncclSuccess : ncclInProgress;
  return now_or_at_group_end([clique] { return wait_for_ranks(*clique); });
}

ncclResult_t free_communicator(ncclComm_t comm) {
  if (!is_communicator(comm)) return nccl_failure(ncclInvalidArgument, "no communicator");
  if (--comm->clique->alive == 0) {
    drop_registrations(*comm->clique);
    comm->clique->calls.clear();
  }
  handle_destroyed(kCommunicator, comm);
  delete comm;
  return ncclSuccess;
}

}  // namespace

ncclResult_t injected_nccl(const char* function) { return static_cast<ncclResult_t>(injected_library(function)); }

ncclResult_t nccl_failure(ncclResult_t result, const std::string& text) {
  last_text = text;
  return result;
}

bool is_communicator(ncclComm_t comm) { return comm != nullptr && handle_alive(kCommunicator, comm); }
bool in_group() { return group_depth > 0; }

ncclResult_t now_or_at_group_end(std::function<ncclResult_t()> work) {
  if (!in_group()) return work();
  group_work.push_back(std::move(work));
  return ncclSuccess;
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUDASIM_API ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return nccl_failure(ncclInvalidArgument, "no place for the version");
  *version = nccl_version();
  return ncclSuccess;
}

CUDASIM_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock;
  if (const ncclResult_t result = injected_nccl("ncclGetUniqueId")) return nccl_failure(result, "asked for");
  if (id == nullptr) return nccl_failure(ncclInvalidArgument, "no place for the id");
  static std::mt19937 generator{std::random_device{}()};
  for (char& byte : id->internal) byte = static_cast<char>(generator());
  return ncclSuccess;
}

CUDASIM_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return init_rank("ncclCommInitRank", comm, ranks, id, rank, true);
}

CUDASIM_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                                ncclConfig_t* config) {
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  if (config != nullptr && config->magic != initial.magic) {
    return nccl_failure(ncclInvalidArgument, "the configuration is not made by NCCL_CONFIG_INITIALIZER");
  }
  return init_rank("ncclCommInitRankConfig", comm, ranks, id, rank, config == nullptr || config->blocking != 0);
}

CUDASIM_API ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ranks, const int* devices) {
  const Lock lock;
  start_machine();
  if (const ncclResult_t result = injected_nccl("ncclCommInitAll")) return nccl_failure(result, "asked for");
  if (comms == nullptr || ranks < 1) return nccl_failure(ncclInvalidArgument, "no place for the communicators");
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id)) return result;
  for (int rank = 0; rank < ranks; ++rank) {
    const ncclResult_t result = join(&comms[rank], ranks, id, rank, devices == nullptr ? rank : devices[rank], true);
    if (result == ncclSuccess) continue;
    for (int made = 0; made < rank; ++made) free_communicator(comms[made]);
    cliques().erase(std::string(id.internal, sizeof id.internal));
    return result;
  }
  return ncclSuccess;
}

CUDASIM_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Lock lock;
  return is_communicator(comm) ? ncclSuccess : nccl_failure(ncclInvalidArgument, "no communicator");
}

CUDASIM_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Lock lock;
  if (is_communicator(comm) && !comm->registered().empty()) {
    return nccl_failure(ncclInvalidUsage, "memory is still registered with the communicator");
  }
  return free_communicator(comm);
}

CUDASIM_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Lock lock;
  if (!is_communicator(comm)) return nccl_failure(ncclInvalidArgument, "no communicator");
  leave_collectives(*comm);
  notify_all();
  return free_communicator(comm);
}

CUDASIM_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Lock lock;
  if (!is_communicator(comm) || error == nullptr) return nccl_failure(ncclInvalidArgument, "no communicator");
  *error = ncclSuccess;
  if (!comm->clique->complete() || !finish_windows(comm)) *error = ncclInProgress;
  if (comm->failed != ncclSuccess) *error = comm->failed;
  if (sticky_error(comm->device) != cudaSuccess) *error = ncclUnhandledCudaError;
  if (const ncclResult_t result = injected_nccl("ncclCommGetAsyncError")) *error = result;
  return ncclSuccess;
}

CUDASIM_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  const Lock lock;
  if (!is_communicator(comm) || count == nullptr) return nccl_failure(ncclInvalidArgument, "no communicator");
  *count = comm->clique->size;
  return ncclSuccess;
}

CUDASIM_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  const Lock lock;
  if (!is_communicator(comm) || device == nullptr) return nccl_failure(ncclInvalidArgument, "no communicator");
  *device = comm->device;
  return ncclSuccess;
}

CUDASIM_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  const Lock lock;
  if (!is_communicator(comm) || rank == nullptr) return nccl_failure(ncclInvalidArgument, "no communicator");
  *rank = comm->rank;
  return ncclSuccess;
}

CUDASIM_API ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

// Runs what the group collected, in order; the first failure is the result.
CUDASIM_API ncclResult_t ncclGroupEnd() {
  const Lock lock;
  if (group_depth == 0) return nccl_failure(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (group_depth > 1) {
    --group_depth;
    return ncclSuccess;
  }
  const std::vector<std::function<ncclResult_t()>> work = std::move(group_work);
  group_work.clear();
  ncclResult_t first = injected_nccl("ncclGroupEnd");
  for (const auto& call : work) {
    if (first == ncclSuccess) first = call();
  }
  group_depth = 0;
  return first;
}

CUDASIM_API const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

CUDASIM_API const char* ncclGetLastError(ncclComm_t) {
  const Lock lock;
  return last_text.c_str();
}

}  // extern "C"
