// One communicator of NCCL with the memory that it has registered: made without blocking, asked for its state, and
// ended in order or by force. Used by the NCCL communicator alone; knows nothing of tensors, other ranks' hosts or
// deadlines.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/core/error.h"
#include "nccl_comm/nccl_check.h"
#include "nccl_comm/nccl_memory.h"

namespace heddle::comm {

// One thread at a time is inside NCCL with it: each call takes the mutex, and none blocks for long, since NCCL's
// communicator is made not to.
class NcclLink {
 public:
  // Begins to connect on the GPU; state() says when it is done. Throws: CommError.
  NcclLink(const ncclUniqueId& id, int rank, int world_size, int device_index);
  // As end(). No block of memory is held any more.
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

  // A block of memory of NCCL's, null and why if it refuses. It is given back when its last owner is gone, and freed by
  // free_given_back() or end(); that may be after the link's maker has let go of it.
  static std::shared_ptr<void> allocate(const std::shared_ptr<NcclLink>& link, std::size_t nbytes,
                                        std::string* refusal);
  // Whether blocks are registered as windows: first begin_window() by all ranks, and when state() says that it is done,
  // is_window(). If not, or it is none, by add_buffer(). Throw: CommError.
  bool makes_windows();
  void begin_window(void* data);
  bool is_window(void* data);
  void add_buffer(void* data);
  // Waits for the GPU, and frees blocks that were given back.
  void free_given_back() noexcept;

  // Begins to leave the group in order, without any block that was registered; state() says when that is done. Throws:
  // CommError.
  void begin_to_leave();
  // Behind that. Throws: CommError.
  void leave();
  // Ends NCCL's work on the GPU, wherever it is. Does not wait for it, nor for recorded steps that still hold it: NCCL
  // gives its memory back when those are gone.
  void abort() noexcept;
  // After leave() or abort(), else as abort(). Waits for the end of what abort() began, then frees blocks that were
  // given back; others are freed when they are.
  void end() noexcept;

 private:
  void give_back(void* data) noexcept;
  void free_blocks() noexcept;

  const int device_index_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // guarded by mutex_; null once it is ended
  // ncclCommAbort() returns when the last graph that holds the communicator's work is destroyed, which the thread that
  // has found the failure does after it: so it runs in a thread of its own.
  std::thread aborting_;
  NcclMemory memory_;   // guarded by mutex_
  bool ended_ = false;  // the same; nothing of NCCL's touches memory any more
};

}  // namespace heddle::comm
