#include "nccl_comm/nccl_link.h"

#include <cuda_runtime_api.h>

#include <system_error>

#include "nccl_comm/blocked_signals.h"

namespace heddle::comm {

NcclLink::NcclLink(const ncclUniqueId& id, int rank, int world_size, int device_index) : device_index_(device_index) {
  if (const cudaError_t error = cudaSetDevice(device_index); error != cudaSuccess) {
    cudaGetLastError();
    throw CommError(join_text("NCCL: cuda:", device_index, " cannot be used: ", cudaGetErrorName(error), " (",
                              cudaGetErrorString(error), ")"));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, world_size, id, rank, &config);
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string text = nccl_error_text(result, "ncclCommInitRankConfig", comm_);
  abort();
  if (aborting_.joinable()) aborting_.join();
  throw CommError(text);
}

NcclLink::~NcclLink() { end(); }

void NcclLink::end() noexcept {
  abort();
  if (aborting_.joinable()) aborting_.join();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  free_blocks();
}

std::shared_ptr<void> NcclLink::allocate(const std::shared_ptr<NcclLink>& link, std::size_t nbytes,
                                         std::string* refusal) {
  const std::lock_guard lock(link->mutex_);
  void* const data = link->memory_.allocate(nbytes, refusal);
  if (data == nullptr) return nullptr;
  return std::shared_ptr<void>(data, [link](void* block) { link->give_back(block); });
}

bool NcclLink::makes_windows() {
  const std::lock_guard lock(mutex_);
  return memory_.makes_windows();
}

void NcclLink::begin_window(void* data) {
  call("ncclCommWindowRegister", [&](ncclComm_t comm) { return memory_.begin_window(comm, data); });
}

bool NcclLink::is_window(void* data) {
  const std::lock_guard lock(mutex_);
  return memory_.is_window(data);
}

void NcclLink::add_buffer(void* data) {
  call("ncclCommRegister", [&](ncclComm_t comm) { return memory_.add_buffer(comm, data); });
}

// From whatever thread the last tensor is destroyed by. While the communicator lives NCCL may still be at the memory,
// and waiting for that could take as long as a lost peer.
void NcclLink::give_back(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  memory_.give_back(data);
  if (ended_) free_blocks();
}

void NcclLink::free_given_back() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) free_blocks();
}

void NcclLink::free_blocks() noexcept {
  if (cudaSetDevice(device_index_) == cudaSuccess) memory_.free_given_back(comm_);
}

ncclResult_t NcclLink::state() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return ncclSuccess;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
  return result == ncclSuccess ? state : result;
}

std::string NcclLink::describe(ncclResult_t state) {
  const std::lock_guard lock(mutex_);
  return nccl_error_text(state, "what was queued", comm_);
}

void NcclLink::begin_to_leave() {
  call("ncclCommFinalize", [this](ncclComm_t comm) {
    memory_.remove_all(comm);
    return ncclCommFinalize(comm);
  });
}

void NcclLink::leave() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const ncclComm_t comm = comm_;
  comm_ = nullptr;
  check_nccl(ncclCommDestroy(comm), "ncclCommDestroy");
}

void NcclLink::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const ncclComm_t comm = comm_;
  comm_ = nullptr;
  memory_.forget_registrations();
  try {
    const BlockedSignals blocked;
    aborting_ = std::thread([comm] { ncclCommAbort(comm); });
  } catch (const std::system_error&) {
    ncclCommAbort(comm);
  }
}

}  // namespace heddle::comm
