// One communicator of NCCL with the memory that it has registered: made without blocking, asked for its state, and
// ended in order or by force. Used by the NCCL communicator alone; knows nothing of tensors or other ranks' hosts.
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/core/error.h"
#include "nccl_comm/nccl_check.h"
#include "nccl_comm/nccl_leave.h"
#include "nccl_comm/nccl_memory.h"

namespace heddle::comm {

// One thread at a time is inside NCCL with it: each call takes the mutex, and none blocks for long, since NCCL's
// communicator is made not to. Those that leave the group may, and do not take it.
class NcclLink {
 public:
  // Begins to connect on the GPU; state() says when it is done. Throws: CommError.
  NcclLink(const ncclUniqueId& id, int rank, int world_size, int device_index, NcclMemoryUse memory);
  // As end().
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

  // What the setting and the library allow.
  const NcclMemoryCalls& memory() const noexcept { return calls_; }
  // A block of memory of NCCL's, null and why if it refuses.
  std::shared_ptr<void> allocate(std::size_t nbytes, std::string* refusal);
  // Makes a block known: add_block(), then either all ranks begin_window(), and when state() says that it is done and
  // it is_known(), that was it; or add_buffer(). It stays known until the link ends. Throw: CommError.
  void add_block(void* data, std::size_t nbytes);
  void begin_window();
  void add_buffer();
  bool is_known();
  // See NcclRegistrations.
  std::int64_t place_of(const void* address);

  // Leaves the group in order if that takes no longer.
  void leave(std::chrono::milliseconds time) noexcept;
  // Ends NCCL's work on the GPU, wherever it is. Does not wait for it, nor for recorded steps that still hold it: NCCL
  // gives its memory back when those are gone.
  void abort() noexcept;
  // After leave() or abort(), else as abort(). Waits for the end of what abort() began. With the last link of the group
  // in this process, blocks that nobody uses are freed.
  void end() noexcept;

 private:
  const int device_index_;
  const NcclMemoryCalls calls_;
  const std::shared_ptr<NcclBlocks> blocks_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  // guarded by mutex_; null once it is ended
  // ncclCommAbort() returns when the last graph that holds the communicator's work is destroyed, which the thread that
  // has found the failure does after it: so it runs in a thread of its own.
  std::thread aborting_;
  NcclRegistrations registrations_;  // guarded by mutex_
  std::unique_ptr<NcclLeave> leave_;
  bool ended_ = false;
};

}  // namespace heddle::comm
