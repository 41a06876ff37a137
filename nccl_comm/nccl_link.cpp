#include "nccl_comm/nccl_link.h"

#include <cuda_runtime_api.h>

#include <system_error>

#include "nccl_comm/blocked_signals.h"

namespace heddle::comm {

NcclLink::NcclLink(const ncclUniqueId& id, int rank, int world_size, int device_index) {
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

NcclLink::~NcclLink() {
  abort();
  if (aborting_.joinable()) aborting_.join();
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
  call("ncclCommFinalize", [](ncclComm_t comm) { return ncclCommFinalize(comm); });
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
  try {
    const BlockedSignals blocked;
    aborting_ = std::thread([comm] { ncclCommAbort(comm); });
  } catch (const std::system_error&) {
    ncclCommAbort(comm);
  }
}

}  // namespace heddle::comm
