// Queued operations and the order in which they run. Used by the stream, event, copy, launch and graph functions.
//
// There is no worker thread: operations form a graph (an operation comes after the one before it in its stream, after
// the events that its stream awaits, and after its peers' predecessors if it is a collective), and whoever waits runs
// what it waits for. So a failure repeats exactly. Everything here needs the lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cudasim/internal.h"

namespace cudasim {

struct Op {
  enum class State { queued, running, done };

  std::string name;
  OpKind kind = OpKind::kernel;
  // Points in a stream (events, joins of a graph) have no work and are no operation for the counters.
  bool marker = false;
  int device = 0;
  std::int64_t stream_number = 0;
  std::vector<Access> accesses;
  std::function<void()> body;
  std::vector<std::shared_ptr<Op>> dependencies;
  // A participant of a collective: how it joins one, and the one that it joined when it was queued.
  std::function<std::shared_ptr<Collective>()> join;
  std::shared_ptr<Collective> collective;
  State state = State::queued;
  // In a random order: the number of the call from which on the operation may run before it is waited for.
  std::uint64_t held_until = 0;
  std::chrono::steady_clock::time_point finished;
  // Addresses that stand for "was queued" and "is done" to the race checker.
  char queued_tag = 0;
  char done_tag = 0;

  bool done() const { return state == State::done; }
};
using OpPtr = std::shared_ptr<Op>;

class Collective {
 public:
  int participants = 0;
  std::function<void()> body;
  std::vector<std::weak_ptr<Op>> joined;

  bool complete() const { return static_cast<int>(joined.size()) == participants; }
};

// Takes the operation over; runs what the policy lets run now. The op's dependencies and fields are complete.
void submit(const OpPtr& op);
// Blocks until the operation is done, running it and what it needs. nullptr is done.
void wait_for(const OpPtr& op);
// Waits for all operations of a device, of all devices if device is -1.
void wait_for_device(int device);
// Runs one operation that op needs, or op itself, if one can run now: what a query does.
void advance(const OpPtr& op);
// Lets the policy run some of the operations that are ready: at the start of every CUDA function.
void run_some();
// Whether an operation that has not run touches these bytes, or may do so without having said it.
bool pending_use(const void* data, std::size_t nbytes);
// Forgets all operations without running them.
void drop_all_operations();
void drop_operations_of(int device);

// The accesses of the operation that runs on the calling thread, nullptr outside of bodies.
const Op* running_op();
// Whether the calling thread runs a host function, in which CUDA calls are not allowed.
bool in_host_function();

struct Policy {
  StreamOrder stream_order;
  ThreadOrder thread_order = ThreadOrder::forward;
  int peer_deadline_ms = 10000;
  // cuDNN proposes an engine whose results are not repeatable before all others, where there is one.
  bool nondeterministic_first = false;
  // What NCCL says that it is; 0: as its header.
  int nccl_version = 0;
  bool computing = true;
  // Of the generator of a random order.
  std::uint32_t random_state = 1;
};
Policy& policy();

}  // namespace cudasim
