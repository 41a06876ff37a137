// One communicator of NCCL: made without blocking, asked for its state, and ended in order or by force. Used by the
// NCCL communicator alone; knows nothing of tensors, other ranks' hosts or deadlines.
#pragma once

#include <nccl.h>

#include <mutex>
#include <string>
#include <thread>

#include "engine/core/error.h"
#include "nccl_comm/nccl_check.h"

namespace heddle::comm {

// One thread at a time is inside NCCL with it: each call takes the mutex, and none blocks for long, since NCCL's
// communicator is made not to.
class NcclLink {
 public:
  // Begins to connect on the GPU; state() says when it is done. Throws: CommError.
  NcclLink(const ncclUniqueId& id, int rank, int world_size, int device_index);
  // After leave() or abort(), else as abort(). Waits for the end of what abort() began.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // ncclSuccess when nothing is under way, ncclInProgress, or what has failed; ncclSuccess after abort().
  ncclResult_t state();
  // The text for a state that is a failure.
  std::string describe(ncclResult_t state);
  // start(ncclComm_t) makes the call of that name. Throws: CommError, after abort() too.
  template <class Start>
  void call(const char* name, const Start& start) {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw CommError(join_text(name, ": NCCL's communicator has ended"));
    check_nccl(start(comm_), name, comm_);
  }

  // Begins to leave the group in order; state() says when that is done. Throws: CommError.
  void begin_to_leave();
  // Behind that. Throws: CommError.
  void leave();
  // Ends NCCL's work on the GPU, wherever it is. Does not wait for it, nor for recorded steps that still hold it: NCCL
  // gives its memory back when those are gone.
  void abort() noexcept;

 private:
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // guarded by mutex_; null once it is ended
  // ncclCommAbort() returns when the last graph that holds the communicator's work is destroyed, which the thread that
  // has found the failure does after it: so it runs in a thread of its own.
  std::thread aborting_;
};

}  // namespace heddle::comm
