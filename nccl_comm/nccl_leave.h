// Takes a communicator of NCCL out of its group in order: nothing registered, everything sent. Each of NCCL's calls for
// that may wait for a peer that has stopped, so they are made in a thread of their own. Used by NcclLink alone.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace heddle::comm {

class NcclLeave {
 public:
  // Calls that give the communicator back what it knows, in order, before it is finalized. They own what they need: one
  // that is stuck may outlive this object. Throws: std::system_error, std::bad_alloc.
  NcclLeave(ncclComm_t comm, std::vector<std::function<ncclResult_t()>> calls);
  // As end().
  ~NcclLeave();
  NcclLeave(const NcclLeave&) = delete;
  NcclLeave& operator=(const NcclLeave&) = delete;

  // Whether all was done within the time; then the communicator can be destroyed. Else no further call is begun, and
  // the communicator must be aborted, which also frees a call that is stuck.
  bool is_done_within(std::chrono::milliseconds time);
  // Once the communicator has been destroyed or aborted. False if a call is stuck all the same; it is left alone then.
  bool end(std::chrono::milliseconds time) noexcept;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool late = false;        // no further call
    bool ended = false;       // the thread makes none any more
    bool successful = false;  // all calls were made
  };
  static void run(State& state, ncclComm_t comm, const std::vector<std::function<ncclResult_t()>>& calls);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace heddle::comm
