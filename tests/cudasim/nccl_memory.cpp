// Memory of the simulated NCCL, and its registration with communicators, as buffers or as windows of all ranks. What on
// a real machine would give wrong data or touch memory that is gone ends the process.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "tests/cudasim/library_face.h"
#include "tests/cudasim/lock.h"
#include "tests/cudasim/nccl_communicator.h"
#include "tests/cudasim/schedule.h"

namespace cudasim {
namespace {

constexpr const char* kRegistration = "NCCL registration";
constexpr const char* kMemory = "NCCL memory";
constexpr std::size_t kPage = 4096;
constexpr int kBuffersSince = 21'900;
constexpr int kWindowsSince = 22'700;

// Memory of ncclMemAlloc(), by address.
std::map<const char*, std::size_t>& own_memory() {
  static std::map<const char*, std::size_t> by_address;
  return by_address;
}
// Those whose ranks have registered something.
std::vector<Clique*>& registering() {
  static std::vector<Clique*> cliques;
  return cliques;
}

void need_version(const char* function, int since) {
  if (nccl_version() < since) die("%s: NCCL %d does not have it", function, nccl_version());
}

bool is_own_memory(const void* data, std::size_t nbytes) {
  const auto* begin = static_cast<const char*>(data);
  auto found = own_memory().upper_bound(begin);
  if (found == own_memory().begin()) return false;
  --found;
  return begin + nbytes <= found->first + found->second && is_reachable(data, nbytes);
}

bool overlaps(const Registration& registration, const void* data, std::size_t nbytes) {
  const auto* begin = static_cast<const char*>(data);
  return begin < registration.data + registration.nbytes && registration.data < begin + nbytes;
}

// Remembers a registration; its handle is an allocated byte.
ncclResult_t add(ncclComm_t comm, const Registration& registration, void** handle) {
  for (const auto& [other, existing] : comm->registered()) {
    if (overlaps(existing, registration.data, registration.nbytes)) {
      return nccl_failure(ncclInvalidUsage, "the memory is registered with the communicator already");
    }
  }
  Clique* const clique = comm->clique.get();
  if (std::count(registering().begin(), registering().end(), clique) == 0) registering().push_back(clique);
  *handle = new char;
  handle_created(kRegistration, *handle);
  comm->registered().emplace(*handle, registration);
  return ncclSuccess;
}

void forget(std::map<void*, Registration>& registered, void* handle) {
  registered.erase(handle);
  handle_destroyed(kRegistration, handle);
  delete static_cast<char*>(handle);
}

// What a test asked a deregistration to do: ncclInProgress stands for a peer that has stopped, for which it waits until
// the communicator is aborted.
ncclResult_t deregistration_fails(const char* function, ncclComm_t comm) {
  const ncclResult_t result = injected_nccl(function);
  if (result == ncclSuccess) return ncclSuccess;
  if (result != ncclInProgress) return nccl_failure(result, "asked for");
  while (is_communicator(comm)) wait_for_notification(10);
  return nccl_failure(ncclInternalError, "the communicator was aborted");
}

ncclResult_t remove(ncclComm_t comm, void* handle, bool window) {
  const auto found = comm->registered().find(handle);
  if (found == comm->registered().end() || found->second.window.has_value() != window) {
    return nccl_failure(ncclInvalidArgument, "nothing registered by that handle");
  }
  forget(comm->registered(), handle);
  return ncclSuccess;
}

// A rank comes to its next window.
ncclResult_t join_window(ncclComm_t comm, void* data, std::size_t nbytes, void** handle) {
  std::vector<Clique::WindowCall>& windows = comm->clique->windows;
  const std::size_t number = comm->next_window;
  void* made = nullptr;
  const Registration registration{
      .data = static_cast<const char*>(data), .nbytes = nbytes, .window = number, .pending = handle};
  if (const ncclResult_t result = add(comm, registration, &made)) return result;
  ++comm->next_window;
  if (number == windows.size()) windows.push_back({.nbytes = nbytes});
  if (windows[number].nbytes != nbytes) {
    die("mismatch: rank %d registers a window of %zu bytes, others one of %zu", comm->rank, nbytes,
        windows[number].nbytes);
  }
  ++windows[number].joined;
  notify_all();
  return ncclSuccess;
}

ncclResult_t wait_for_window(ncclComm_t comm) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(policy().peer_deadline_ms);
  while (!finish_windows(comm)) {
    if (std::chrono::steady_clock::now() > deadline) {
      die("ncclCommWindowRegister: rank %d waits for others, which did not come within %d ms: on a real machine this "
          "hangs",
          comm->rank, policy().peer_deadline_ms);
    }
    wait_for_notification(10);
  }
  return ncclSuccess;
}

}  // namespace

int nccl_version() { return policy().nccl_version == 0 ? NCCL_VERSION_CODE : policy().nccl_version; }

bool finish_windows(ncclComm_t comm) {
  bool all = true;
  for (auto& [handle, registration] : comm->registered()) {
    if (registration.pending == nullptr) continue;
    if (comm->clique->windows[*registration.window].joined < comm->clique->size) {
      all = false;
      continue;
    }
    *registration.pending = handle;
    registration.pending = nullptr;
  }
  return all;
}

void* find_registration(const ncclComm& comm, const void* data, std::size_t nbytes) {
  for (const auto& [handle, registration] : comm.registered()) {
    if (registration.contains(data, nbytes)) return handle;
  }
  return nullptr;
}

void drop_registrations(Clique& clique) {
  for (auto& registered : clique.registered) {
    while (!registered.empty()) forget(registered, registered.begin()->first);
  }
  registering().erase(std::remove(registering().begin(), registering().end(), &clique), registering().end());
}

}  // namespace cudasim

using namespace cudasim;

extern "C" {

CUDASIM_API ncclResult_t ncclMemAlloc(void** data, size_t nbytes) {
  const Lock lock;
  need_version("ncclMemAlloc", kBuffersSince);
  if (const ncclResult_t result = injected_nccl("ncclMemAlloc")) return nccl_failure(result, "asked for");
  if (data == nullptr || nbytes == 0) return nccl_failure(ncclInvalidArgument, "no memory asked for");
  // Whole pages, so that it begins at one: windows demand that.
  const std::size_t rounded = (nbytes + kPage - 1) / kPage * kPage;
  if (cudaMalloc(data, rounded) != cudaSuccess) return nccl_failure(ncclUnhandledCudaError, "cudaMalloc failed");
  own_memory()[static_cast<const char*>(*data)] = rounded;
  handle_created(kMemory, *data);
  return ncclSuccess;
}

CUDASIM_API ncclResult_t ncclMemFree(void* data) {
  const Lock lock;
  need_version("ncclMemFree", kBuffersSince);
  if (data == nullptr) return ncclSuccess;
  const auto found = own_memory().find(static_cast<const char*>(data));
  if (found == own_memory().end()) return nccl_failure(ncclInvalidArgument, "not memory of ncclMemAlloc");
  for (const Clique* clique : registering()) {
    for (std::size_t rank = 0; rank < clique->registered.size(); ++rank) {
      for (const auto& [handle, registration] : clique->registered[rank]) {
        if (!overlaps(registration, data, found->second)) continue;
        die("ncclMemFree: the memory is still registered with rank %zu of a communicator, which may touch it until all "
            "ranks of this process have ended",
            rank);
      }
    }
  }
  own_memory().erase(found);
  handle_destroyed(kMemory, data);
  return cudaFree(data) == cudaSuccess ? ncclSuccess : nccl_failure(ncclUnhandledCudaError, "cudaFree failed");
}

CUDASIM_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t nbytes, void** handle) {
  const Lock lock;
  need_version("ncclCommRegister", kBuffersSince);
  if (const ncclResult_t result = injected_nccl("ncclCommRegister")) return nccl_failure(result, "asked for");
  if (!is_communicator(comm) || handle == nullptr || !is_reachable(data, nbytes)) {
    return nccl_failure(ncclInvalidArgument, "no communicator, or no memory");
  }
  // With NCCL_LOCAL_REGISTER=0 NCCL says yes and registers nothing.
  if (injected_nccl("ncclCommRegister, without a handle") != ncclSuccess) {
    *handle = nullptr;
    return ncclSuccess;
  }
  return add(comm, {.data = static_cast<const char*>(data), .nbytes = nbytes}, handle);
}

CUDASIM_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const Lock lock;
  need_version("ncclCommDeregister", kBuffersSince);
  if (!is_communicator(comm)) return nccl_failure(ncclInvalidArgument, "no communicator");
  if (const ncclResult_t result = deregistration_fails("ncclCommDeregister", comm)) return result;
  return remove(comm, handle, false);
}

// All ranks come to it, with as many bytes. The handle is there when they have.
CUDASIM_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t nbytes, ncclWindow_t* window,
                                                int flags) {
  const Lock lock;
  need_version("ncclCommWindowRegister", kWindowsSince);
  if (const ncclResult_t result = injected_nccl("ncclCommWindowRegister")) return nccl_failure(result, "asked for");
  if (!is_communicator(comm) || window == nullptr || (flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0) {
    return nccl_failure(ncclInvalidArgument, "no communicator, or unknown flags");
  }
  if (!comm->clique->complete()) return nccl_failure(ncclInvalidUsage, "the communicator is not ready");
  if (!is_own_memory(data, nbytes) || reinterpret_cast<std::uintptr_t>(data) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return nccl_failure(ncclInvalidArgument, "a window must begin at a page of ncclMemAlloc's memory");
  }
  // A rank can also be refused after its call, which the others then wait for.
  if (!comm->blocking && (comm->failed = injected_nccl("ncclCommWindowRegister, behind the call")) != ncclSuccess) {
    nccl_failure(comm->failed, "asked for");
    return ncclInProgress;
  }
  if (const ncclResult_t result = join_window(comm, data, nbytes, reinterpret_cast<void**>(window))) return result;
  if (!comm->blocking) return finish_windows(comm) ? ncclSuccess : ncclInProgress;
  return now_or_at_group_end([comm] { return wait_for_window(comm); });
}

CUDASIM_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  const Lock lock;
  need_version("ncclCommWindowDeregister", kWindowsSince);
  if (!is_communicator(comm)) return nccl_failure(ncclInvalidArgument, "no communicator");
  if (const ncclResult_t result = deregistration_fails("ncclCommWindowDeregister", comm)) return result;
  return remove(comm, window, true);
}

}  // extern "C"
