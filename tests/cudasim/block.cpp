// The block runner: one fiber runs thread after thread in a plain loop; only a thread that has to wait at a barrier or
// a warp operation is parked with its fiber, and another fiber goes on with the loop. So a kernel without barriers
// never switches stacks.
#include "tests/cudasim/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/cudasim/device_fault.h"
#include "tests/cudasim/fiber.h"
#include "tests/cudasim/internal.h"
#include "tests/cudasim/race_checker.h"
#include "tests/cudasim/shim/indices.h"
#include "tests/cudasim/warp.h"

CUDASIM_TLS thread_local uint3 threadIdx = {0, 0, 0};
CUDASIM_TLS thread_local uint3 blockIdx = {0, 0, 0};
CUDASIM_TLS thread_local dim3 blockDim;
CUDASIM_TLS thread_local dim3 gridDim;

namespace cudasim {
namespace {

constexpr std::size_t kStackNbytes = 128 << 10;
constexpr std::size_t kSharedNbytes = 256 << 10;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaxThreads = 1024;

// For the handler of memory faults, which must not construct anything.
CUDASIM_TLS thread_local const char* t_running_kernel = nullptr;

// A fiber and the CUDA thread that it runs at the moment.
struct Worker {
  explicit Worker(void (*entry)()) : context(kStackNbytes, entry) {}
  Context context;
  bool has_thread = false;
  unsigned thread = 0;
  uint3 index = {0, 0, 0};
};

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner() { munmap(shared_, kSharedNbytes + kPage); }
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  void run_grid(const KernelCall& call, const LaunchShape& shape, ThreadOrder order, const char* name);

  // Called on fibers.
  [[noreturn]] void worker_main();
  bool next_thread();
  int barrier(BarrierKind kind, int predicate, int line);
  std::uint64_t warp_operation(unsigned mask, Warp::Request request);
  void* shared() const { return shared_begin_; }
  [[noreturn]] void fault();

 private:
  void run_block();
  void resume(Worker* worker);
  void park();
  void make_ready(Worker* worker) { ready_[(first_ready_ + ready_count_++) % kMaxThreads] = worker; }
  void thread_ended();
  void release_barrier();
  void abandon();
  [[noreturn]] void report_deadlock() const;
  uint3 index_of(unsigned thread) const;

  // The launch.
  const KernelCall* call_ = nullptr;
  const char* name_ = "";
  ThreadOrder order_ = ThreadOrder::forward;
  unsigned threads_ = 0;
  char* shared_ = nullptr;
  char* shared_begin_ = nullptr;
  std::size_t shared_nbytes_ = 0;

  // The block.
  unsigned started_ = 0;
  unsigned alive_ = 0;
  std::size_t warp_count_ = 0;
  std::array<Warp, kMaxThreads / 32> warps_;
  std::vector<Worker*> at_barrier_;
  int barrier_line_ = 0;
  BarrierKind barrier_kind_ = BarrierKind::plain;
  int barrier_count_ = 0;
  unsigned barrier_arrived_ = 0;
  int barrier_result_ = 0;
  // Workers that can go on: a ring, since each thread is in it at most once.
  std::array<Worker*, kMaxThreads> ready_ = {};
  std::size_t first_ready_ = 0;
  std::size_t ready_count_ = 0;
  std::array<Worker*, kMaxThreads> parked_lanes_ = {};

  // The fibers.
  Context main_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  Worker* current_ = nullptr;
  bool faulted_ = false;
};

BlockRunner& runner() {
  // On the heap: a plugin that is loaded at run time finds little room in a thread's static memory.
  static thread_local const auto instance = std::make_unique<BlockRunner>();
  return *instance;
}

void fiber_entry() { runner().worker_main(); }

BlockRunner::BlockRunner() {
  void* mapping =
      mmap(nullptr, kSharedNbytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) die("no memory for dynamic shared memory");
  // Threads of the block allocate nothing: the race checker would take it for the program's doing.
  at_barrier_.reserve(kMaxThreads);
  workers_.reserve(kMaxThreads);
  idle_.reserve(kMaxThreads);
  shared_ = static_cast<char*>(mapping);
  mprotect(shared_ + kSharedNbytes, kPage, PROT_NONE);
}

uint3 BlockRunner::index_of(unsigned thread) const {
  if (thread < blockDim.x) return {thread, 0, 0};
  const unsigned row = thread / blockDim.x;
  return {thread % blockDim.x, row % blockDim.y, row / blockDim.y};
}

void BlockRunner::run_grid(const KernelCall& call, const LaunchShape& shape, ThreadOrder order, const char* name) {
  call_ = &call;
  name_ = name;
  order_ = order;
  blockDim = shape.block;
  gridDim = shape.grid;
  threads_ = shape.block.x * shape.block.y * shape.block.z;
  shared_nbytes_ = shape.dynamic_shared_nbytes;
  shared_begin_ = shared_ + kSharedNbytes - (shared_nbytes_ + 15) / 16 * 16;
  warp_count_ = (threads_ + 31) / 32;
  const std::uint64_t blocks = std::uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t block = order == ThreadOrder::forward ? i : blocks - 1 - i;
    const std::uint64_t row = block / shape.grid.x;
    blockIdx = {static_cast<unsigned>(block % shape.grid.x), static_cast<unsigned>(row % shape.grid.y),
                static_cast<unsigned>(row / shape.grid.y)};
    run_block();
  }
}

void BlockRunner::run_block() {
  started_ = 0;
  alive_ = threads_;
  barrier_arrived_ = 0;
  barrier_count_ = 0;
  for (std::size_t i = 0; i < warp_count_; ++i) {
    const unsigned lanes = std::min(32u, threads_ - static_cast<unsigned>(i) * 32);
    warps_[i].start(lanes == 32 ? ~0u : (1u << lanes) - 1);
  }
  if (shared_nbytes_ != 0) std::memset(shared_begin_, 0xff, shared_nbytes_);
  race_checker::release(&started_);
  while (alive_ > 0) {
    Worker* worker = nullptr;
    if (started_ < threads_) {
      if (idle_.empty()) {
        workers_.push_back(std::make_unique<Worker>(fiber_entry));
        idle_.push_back(workers_.back().get());
      }
      worker = idle_.back();
      idle_.pop_back();
    } else if (ready_count_ > 0) {
      worker = ready_[first_ready_];
      first_ready_ = (first_ready_ + 1) % kMaxThreads;
      --ready_count_;
    } else {
      report_deadlock();
    }
    resume(worker);
    if (faulted_) {
      abandon();
      throw DeviceFault{cudaErrorIllegalAddress};
    }
  }
  race_checker::acquire(&started_);
}

void BlockRunner::resume(Worker* worker) {
  current_ = worker;
  t_running_kernel = name_;
  threadIdx = worker->index;
  Context::switch_to(main_, worker->context);
  t_running_kernel = nullptr;
  current_ = nullptr;
}

// Leaves the running fiber until it is resumed.
void BlockRunner::park() { Context::switch_to(current_->context, main_); }

void BlockRunner::worker_main() {
  Context::entered(main_);
  for (;;) {
    call_->run_threads();
    idle_.push_back(current_);
    park();
  }
}

bool BlockRunner::next_thread() {
  if (current_->has_thread) {
    thread_ended();
#ifdef CUDASIM_TSAN
    // A thread of its own for the race checker: the next CUDA thread gets another fiber.
    return false;
#endif
  }
  if (started_ == threads_) return false;
  const unsigned thread = order_ == ThreadOrder::forward ? started_ : threads_ - 1 - started_;
  ++started_;
  current_->thread = thread;
  current_->has_thread = true;
  current_->index = index_of(thread);
  threadIdx = current_->index;
  race_checker::acquire(&started_);
  return true;
}

void BlockRunner::thread_ended() {
  current_->has_thread = false;
  race_checker::release(&started_);
  --alive_;
  warps_[current_->thread / 32].lane_ended(current_->thread % 32);
  if (barrier_arrived_ != 0 && barrier_arrived_ == alive_) release_barrier();
}

int BlockRunner::barrier(BarrierKind kind, int predicate, int line) {
  if (barrier_arrived_ == 0) {
    barrier_line_ = line;
    barrier_kind_ = kind;
  } else if (barrier_line_ != line || barrier_kind_ != kind) {
    die("kernel %s: divergent barrier: some threads of block (%u,%u,%u) wait at line %d, thread (%u,%u,%u) at line %d",
        name_, blockIdx.x, blockIdx.y, blockIdx.z, barrier_line_, threadIdx.x, threadIdx.y, threadIdx.z, line);
  }
  race_checker::release(&barrier_line_);
  ++barrier_arrived_;
  barrier_count_ += predicate != 0 ? 1 : 0;
  if (barrier_arrived_ == alive_) {
    release_barrier();
  } else {
    at_barrier_.push_back(current_);
    park();
  }
  race_checker::acquire(&barrier_line_);
  return barrier_result_;
}

void BlockRunner::release_barrier() {
  switch (barrier_kind_) {
    case BarrierKind::plain: barrier_result_ = 0; break;
    case BarrierKind::count: barrier_result_ = barrier_count_; break;
    case BarrierKind::all: barrier_result_ = barrier_count_ == static_cast<int>(barrier_arrived_) ? 1 : 0; break;
    case BarrierKind::any: barrier_result_ = barrier_count_ != 0 ? 1 : 0; break;
  }
  barrier_arrived_ = 0;
  barrier_count_ = 0;
  for (Worker* worker : at_barrier_) make_ready(worker);
  at_barrier_.clear();
}

std::uint64_t BlockRunner::warp_operation(unsigned mask, Warp::Request request) {
  const unsigned thread = current_->thread;
  Warp& warp = warps_[thread / 32];
  const unsigned lane = thread % 32;
  request.mask = mask;
  race_checker::release(&warp);
  if (warp.arrive(lane, request, name_)) {
    Worker** lanes = &parked_lanes_[thread / 32 * 32];
    for (unsigned i = 0; i < 32; ++i) {
      if ((mask >> i & 1u) == 0 || i == lane) continue;
      make_ready(lanes[i]);
    }
  } else {
    parked_lanes_[thread] = current_;
    park();
  }
  race_checker::acquire(&warp);
  return warp.result(lane);
}

void BlockRunner::fault() {
  faulted_ = true;
  for (;;) park();
}

// Drops the threads of a block that a fault ended.
void BlockRunner::abandon() {
  faulted_ = false;
  ready_count_ = 0;
  at_barrier_.clear();
  idle_.clear();
  for (const std::unique_ptr<Worker>& worker : workers_) {
    worker->has_thread = false;
    worker->context.restart();
    idle_.push_back(worker.get());
  }
}

void BlockRunner::report_deadlock() const {
  for (std::size_t i = 0; i < warp_count_; ++i) {
    if (const unsigned lanes = warps_[i].arrived()) {
      die("kernel %s: deadlock in block (%u,%u,%u): lanes %08x of warp %zu wait in a warp operation at line %d for "
          "lanes "
          "that never come",
          name_, blockIdx.x, blockIdx.y, blockIdx.z, lanes, i,
          warps_[i].line(static_cast<unsigned>(__builtin_ctz(lanes))));
    }
  }
  die("kernel %s: deadlock in block (%u,%u,%u): %u of %u threads wait at the barrier in line %d", name_, blockIdx.x,
      blockIdx.y, blockIdx.z, barrier_arrived_, alive_, barrier_line_);
}

}  // namespace

void run_grid(const KernelCall& call, const LaunchShape& shape, ThreadOrder order, const char* name) {
  runner().run_grid(call, shape, order, name);
}

const char* running_kernel() { return t_running_kernel; }
void leave_faulted_kernel() { runner().fault(); }

CUDASIM_API bool next_thread() { return runner().next_thread(); }
CUDASIM_API int block_barrier(BarrierKind kind, int predicate, int line) {
  return runner().barrier(kind, predicate, line);
}
CUDASIM_API std::uint64_t warp_operation(WarpOp op, unsigned mask, std::uint64_t value, int argument, int width,
                                         int line) {
  return runner().warp_operation(mask, {op, mask, value, argument, width, line});
}
CUDASIM_API void* dynamic_shared_memory() { return runner().shared(); }

}  // namespace cudasim
