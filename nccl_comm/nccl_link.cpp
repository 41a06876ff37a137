#include "nccl_comm/nccl_link.h"

#include <cuda_runtime_api.h>

#include <list>
#include <system_error>
#include <utility>
#include <vector>

#include "nccl_comm/blocked_signals.h"

namespace heddle::comm {
namespace {

// Longest time for a call that was stuck to come back once its communicator is aborted.
constexpr std::chrono::milliseconds kStuck{5000};

}  // namespace

NcclLink::NcclLink(const ncclUniqueId& id, int rank, int world_size, int device_index, NcclMemoryUse memory)
    : device_index_(device_index),
      calls_(find_nccl_memory_calls(memory)),
      blocks_(NcclBlocks::of(id)),
      registrations_(calls_) {
  if (const cudaError_t error = cudaSetDevice(device_index); error != cudaSuccess) {
    cudaGetLastError();
    throw CommError(join_text("NCCL: cuda:", device_index, " cannot be used: ", cudaGetErrorName(error), " (",
                              cudaGetErrorString(error), ")"));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  blocks_->begin_link();
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, world_size, id, rank, &config);
  if (result == ncclSuccess || result == ncclInProgress) return;
  const std::string text = nccl_error_text(result, "ncclCommInitRankConfig", comm_);
  end();
  throw CommError(text);
}

NcclLink::~NcclLink() { end(); }

void NcclLink::end() noexcept {
  if (ended_) return;
  ended_ = true;
  abort();
  if (aborting_.joinable()) aborting_.join();
  // A call that is stuck still uses the memory, which is not freed then.
  if (leave_ == nullptr || leave_->end(kStuck)) blocks_->end_link();
}

std::shared_ptr<void> NcclLink::allocate(std::size_t nbytes, std::string* refusal) {
  return NcclBlocks::allocate(blocks_, calls_, device_index_, nbytes, refusal);
}

void NcclLink::add_block(void* data, std::size_t nbytes) {
  const std::lock_guard lock(mutex_);
  registrations_.add(data, nbytes);
}

void NcclLink::begin_window() {
  call("ncclCommWindowRegister", [this](ncclComm_t comm) { return registrations_.begin_window(comm); });
}

void NcclLink::add_buffer() {
  call("ncclCommRegister", [this](ncclComm_t comm) { return registrations_.add_buffer(comm); });
}

bool NcclLink::is_known() {
  const std::lock_guard lock(mutex_);
  return registrations_.is_known();
}

std::int64_t NcclLink::place_of(const void* address) {
  const std::lock_guard lock(mutex_);
  return registrations_.place_of(address);
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

void NcclLink::leave(std::chrono::milliseconds time) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return;
      const auto known = std::make_shared<const std::list<NcclRegistration>>(registrations_.take());
      std::vector<std::function<ncclResult_t()>> calls;
      for (const NcclRegistration& one : *known) {
        calls.emplace_back([known, &one, comm = comm_, with = calls_] { return deregister(with, comm, one); });
      }
      leave_ = std::make_unique<NcclLeave>(comm_, std::move(calls));
    }
    if (!leave_->is_done_within(time)) return;
  } catch (const std::exception&) {
    // No thread, or no memory for it: end() does it by force.
    return;
  }
  const std::lock_guard lock(mutex_);
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  ncclCommDestroy(comm);
}

void NcclLink::abort() noexcept {
  const std::lock_guard lock(mutex_);
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return;
  try {
    const BlockedSignals blocked;
    aborting_ = std::thread([comm] { ncclCommAbort(comm); });
  } catch (const std::system_error&) {
    ncclCommAbort(comm);
  }
}

}  // namespace heddle::comm
