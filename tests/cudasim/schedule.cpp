// The order of queued operations; see the header.
#include "tests/cudasim/schedule.h"

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "tests/cudasim/device_fault.h"
#include "tests/cudasim/executor.h"
#include "tests/cudasim/lock.h"
#include "tests/cudasim/machine.h"
#include "tests/cudasim/memory.h"
#include "tests/cudasim/race_checker.h"

namespace cudasim {
namespace {

// A real launch queue is finite, too: the host then waits for the oldest operation.
constexpr std::size_t kQueueLimit = 1024;

// Operations that are not done, oldest first; done ones are removed now and then.
std::deque<OpPtr> g_pending;
std::size_t g_done_in_pending = 0;
Policy g_policy;
// Counts run_some().
std::uint64_t g_calls = 0;
thread_local const Op* t_running = nullptr;
thread_local bool t_in_host_function = false;

class RunningOp {
 public:
  explicit RunningOp(const Op* op) : previous_(t_running) { t_running = op; }
  ~RunningOp() { t_running = previous_; }
  RunningOp(const RunningOp&) = delete;
  RunningOp& operator=(const RunningOp&) = delete;

 private:
  const Op* previous_;
};

// What stands for "everything of this device so far" to the race checker.
char g_device_tags[kMaxDevices] = {};

// Tells the race checker what comes before an operation. In the thread of its stream.
void acquire_order(Op& op) {
  race_checker::acquire(&op.queued_tag);
  for (const OpPtr& dependency : op.dependencies) race_checker::acquire(&dependency->done_tag);
}

void release_order(Op& op) {
  race_checker::release(&op.done_tag);
  race_checker::release(&g_device_tags[op.device]);
}

// Tells the race checker what the simulator's own code does to memory in an operation.
void touch_accesses([[maybe_unused]] const Op& op) {
#ifdef CUDASIM_TSAN
  for (const Access& access : op.accesses) {
    const Allocation* allocation = find_allocation(access.data);
    if (allocation == nullptr) continue;
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(access.data) - allocation->address;
    race_checker::touch(reinterpret_cast<void*>(allocation->data() + offset), access.nbytes, access.write);
  }
#endif
}

void finish(Op& op) {
  op.state = Op::State::done;
  op.finished = std::chrono::steady_clock::now();
  op.body = nullptr;
  op.join = nullptr;
  op.dependencies.clear();
  if (++g_done_in_pending > 256) {
    g_done_in_pending = 0;
    std::erase_if(g_pending, [](const OpPtr& pending) { return pending->done(); });
  }
}

// Runs a body unless the device has failed before; a fault makes the device fail.
void run_body(Op& op, const std::function<void()>& body) {
  if (!body || sticky_error(op.device) != cudaSuccess) return;
  const bool computes = op.kind == OpKind::kernel || op.kind == OpKind::library_call || op.kind == OpKind::collective;
  if (computes && !policy().computing) return;
  const RunningOp running(&op);
  try {
    if (op.kind == OpKind::host_function) {
      const Unlock unlock;
      t_in_host_function = true;
      body();
      t_in_host_function = false;
    } else {
      body();
    }
  } catch (const DeviceFault& fault) {
    set_sticky_error(op.device, fault.error);
  }
}

void run(const OpPtr& op) {
  if (const std::shared_ptr<Collective> collective = op->collective) {
    std::vector<OpPtr> peers;
    for (const std::weak_ptr<Op>& weak : collective->joined) {
      if (OpPtr peer = weak.lock()) peers.push_back(std::move(peer));
    }
    // Accesses of all ranks hold in the body.
    Op all;
    all.name = op->name;
    all.kind = op->kind;
    all.device = op->device;
    for (const OpPtr& peer : peers) {
      all.accesses.insert(all.accesses.end(), peer->accesses.begin(), peer->accesses.end());
    }
    run_for_stream(op->device, op->stream_number, [&] {
      for (const OpPtr& peer : peers) acquire_order(*peer);
      touch_accesses(all);
      run_body(all, collective->body);
      for (const OpPtr& peer : peers) release_order(*peer);
    });
    for (const OpPtr& peer : peers) finish(*peer);
  } else {
    op->state = Op::State::running;
    run_for_stream(op->device, op->stream_number, [&] {
      acquire_order(*op);
      touch_accesses(*op);
      run_body(*op, op->body);
      release_order(*op);
    });
    finish(*op);
  }
  notify_all();
}

// What must be done before op can run: its dependencies, and for a collective those of its peers. nullptr if nothing.
OpPtr unfinished_dependency(const Op& op) {
  for (const OpPtr& dependency : op.dependencies) {
    if (!dependency->done()) return dependency;
  }
  if (op.collective == nullptr) return nullptr;
  for (const std::weak_ptr<Op>& weak : op.collective->joined) {
    const OpPtr peer = weak.lock();
    if (peer == nullptr) continue;
    for (const OpPtr& dependency : peer->dependencies) {
      if (!dependency->done()) return dependency;
    }
  }
  return nullptr;
}

bool ready(const Op& op) {
  return op.state == Op::State::queued && (op.collective == nullptr || op.collective->complete()) &&
         unfinished_dependency(op) == nullptr;
}

// Waits until another thread has done something, for an operation that this thread cannot run.
void wait_for_others(const Op& op, std::chrono::steady_clock::time_point& deadline) {
  const auto now = std::chrono::steady_clock::now();
  const bool peer_missing = op.collective != nullptr && !op.collective->complete();
  if (peer_missing && now > deadline) {
    die("%s: %zu of %d ranks came, the others did not within %d ms: on a real machine this hangs", op.name.c_str(),
        op.collective->joined.size(), op.collective->participants, g_policy.peer_deadline_ms);
  }
  wait_for_notification(10);
}

std::uint32_t random_number() {
  g_policy.random_state = g_policy.random_state * 1664525u + 1013904223u;
  return g_policy.random_state >> 16;
}

}  // namespace

Policy& policy() { return g_policy; }
const Op* running_op() { return t_running; }
bool in_host_function() { return t_in_host_function; }

void submit(const OpPtr& op) {
  std::erase_if(op->dependencies, [](const OpPtr& dependency) { return dependency == nullptr; });
  race_checker::release(&op->queued_tag);
  // Half of the operations may run at once, the others are late by up to so many calls.
  constexpr std::uint32_t kLongestHold = 64;
  if (g_policy.stream_order.kind == StreamOrder::random && random_number() % 2 == 0) {
    op->held_until = g_calls + 1 + random_number() % kLongestHold;
  }
  g_pending.push_back(op);
  if (op->collective != nullptr) {
    op->collective->joined.push_back(op);
    notify_all();
  }
  run_some();
  if (g_pending.size() - g_done_in_pending > kQueueLimit) {
    const OpPtr oldest = g_pending.front();
    wait_for(oldest);
  }
}

void wait_for(const OpPtr& op) {
  if (op == nullptr) return;
  auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(g_policy.peer_deadline_ms);
  std::vector<OpPtr> path = {op};
  std::unordered_set<const Op*> on_path = {op.get()};
  while (!path.empty()) {
    const OpPtr top = path.back();
    if (top->done()) {
      on_path.erase(top.get());
      path.pop_back();
      continue;
    }
    const bool blocked =
        top->state == Op::State::running || (top->collective != nullptr && !top->collective->complete());
    if (blocked) {
      wait_for_others(*top, deadline);
      continue;
    }
    if (const OpPtr next = unfinished_dependency(*top)) {
      if (!on_path.insert(next.get()).second) {
        die("cyclic wait: %s and %s wait for each other; ranks queue their collectives in different orders",
            top->name.c_str(), next->name.c_str());
      }
      path.push_back(next);
      continue;
    }
    run(top);
    deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(g_policy.peer_deadline_ms);
  }
  race_checker::acquire(&op->done_tag);
}

void wait_for_device(int device) {
  // A copy: waiting changes the list.
  const std::vector<OpPtr> pending(g_pending.begin(), g_pending.end());
  for (const OpPtr& op : pending) {
    if (device == -1 || op->device == device) wait_for(op);
  }
  for (int i = 0; i < kMaxDevices; ++i) {
    if (device == -1 || device == i) race_checker::acquire(&g_device_tags[i]);
  }
}

void advance(const OpPtr& op) {
  OpPtr current = op;
  std::unordered_set<const Op*> seen;
  while (current != nullptr && !current->done() && seen.insert(current.get()).second) {
    if (ready(*current)) {
      run(current);
      return;
    }
    current = unfinished_dependency(*current);
  }
}

void run_some() {
  if (g_policy.stream_order.kind == StreamOrder::lazy || t_running != nullptr || t_in_host_function) return;
  ++g_calls;
  bool progress = true;
  while (progress) {
    progress = false;
    // By index: running a host function gives the lock away, and others may add or remove operations.
    for (std::size_t i = 0; i < g_pending.size(); ++i) {
      const OpPtr op = g_pending[i];
      if (op->held_until > g_calls || !ready(*op)) continue;
      run(op);
      progress = true;
    }
  }
}

bool pending_use(const void* data, std::size_t nbytes) {
  const auto* begin = static_cast<const char*>(data);
  for (const OpPtr& op : g_pending) {
    if (op->done() || op->marker) continue;
    if (op->kind == OpKind::host_function) return true;
    for (const Access& access : op->accesses) {
      const auto* other = static_cast<const char*>(access.data);
      if (begin < other + access.nbytes && other < begin + nbytes) return true;
    }
  }
  return false;
}

void drop_operations_of(int device) {
  for (const OpPtr& op : g_pending) {
    if (op->device != device || op->done()) continue;
    op->dependencies.clear();
    op->body = nullptr;
    op->state = Op::State::done;
  }
  std::erase_if(g_pending, [](const OpPtr& op) { return op->done(); });
  g_done_in_pending = 0;
}

void drop_all_operations() {
  for (int device = 0; device < kMaxDevices; ++device) drop_operations_of(device);
}

}  // namespace cudasim
