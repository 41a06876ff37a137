#include "nccl_comm/nccl_leave.h"

#include <utility>

#include "nccl_comm/blocked_signals.h"

namespace heddle::comm {
namespace {

constexpr std::chrono::microseconds kPause{50};

}  // namespace

NcclLeave::NcclLeave(ncclComm_t comm, std::vector<std::function<ncclResult_t()>> calls) {
  calls.emplace_back([comm] { return ncclCommFinalize(comm); });
  const BlockedSignals blocked;
  thread_ = std::thread([state = state_, comm, calls = std::move(calls)] {
    run(*state, comm, calls);
    const std::lock_guard lock(state->mutex);
    state->ended = true;
    state->changed.notify_all();
  });
}

NcclLeave::~NcclLeave() { end({}); }

void NcclLeave::run(State& state, ncclComm_t comm, const std::vector<std::function<ncclResult_t()>>& calls) {
  for (const auto& call : calls) {
    {
      const std::lock_guard lock(state.mutex);
      if (state.late) return;
    }
    ncclResult_t result = call();
    while (result == ncclSuccess || result == ncclInProgress) {
      {
        // Does not block. Under the mutex, for behind `late` the communicator may be gone.
        const std::lock_guard lock(state.mutex);
        if (state.late || ncclCommGetAsyncError(comm, &result) != ncclSuccess) return;
      }
      if (result == ncclSuccess) break;
      std::this_thread::sleep_for(kPause);
    }
    if (result != ncclSuccess) return;
  }
  const std::lock_guard lock(state.mutex);
  state.successful = true;
}

bool NcclLeave::is_done_within(std::chrono::milliseconds time) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, time, [this] { return state_->ended; });
  state_->late = true;
  return state_->ended && state_->successful;
}

bool NcclLeave::end(std::chrono::milliseconds time) noexcept {
  if (!thread_.joinable()) return true;
  bool ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->late = true;
    ended = state_->changed.wait_for(lock, time, [this] { return state_->ended; });
  }
  ended ? thread_.join() : thread_.detach();
  return ended;
}

}  // namespace heddle::comm
