// Collective calls that hang or corrupt data on real hardware. Each runs in a process of its own, which the simulated
// NCCL must end with a report; nccl_test.cpp reads it.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/rank_threads.h"

namespace cudasim::test {
namespace {

// One rank sums more than the other.
void mismatch() {
  run_ranks(2, [](Rank& rank) {
    const NumberArray x(8);
    const std::size_t count = rank.index == 0 ? 8 : 4;
    require_ok(ncclAllReduce(x.data(), x.data(), count, ncclFloat32, ncclSum, rank.comm, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
  });
}

// One rank leaves its all-reduce out.
void missing_call() {
  set_peer_deadline_ms(300);
  run_ranks(2, [](Rank& rank) {
    const NumberArray x(8);
    if (rank.index == 1) return;
    require_ok(ncclAllReduce(x.data(), x.data(), 8, ncclFloat32, ncclSum, rank.comm, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
  });
}

// The second rank never makes its communicator.
void missing_rank() {
  set_peer_deadline_ms(300);
  ncclUniqueId id;
  require_ok(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  require_ok(ncclCommInitRank(&comm, 2, id, 0));
}

// Two communicators, used in opposite orders on one stream of each rank.
void crossed() {
  ncclUniqueId other;
  require_ok(ncclGetUniqueId(&other));
  run_ranks(2, [other](Rank& rank) {
    ncclComm_t second = nullptr;
    require_ok(ncclCommInitRank(&second, 2, other, rank.index));
    const NumberArray x(8), y(8);
    for (const bool own : {rank.index == 0, rank.index != 0}) {
      require_ok(ncclAllReduce(own ? x.data() : y.data(), own ? x.data() : y.data(), 8, ncclFloat32, ncclSum,
                               own ? rank.comm : second, rank.stream));
    }
    require_ok(cudaStreamSynchronize(rank.stream));
  });
}

// A block of NCCL's memory, registered as this rank's part of a window.
struct Window {
  Window(const Rank& of, std::size_t nbytes) : rank(of) {
    require_ok(ncclMemAlloc(&data, nbytes));
    require_ok(ncclCommWindowRegister(rank.comm, data, nbytes, &window, NCCL_WIN_COLL_SYMMETRIC));
  }

  const Rank& rank;
  void* data = nullptr;
  ncclWindow_t window = nullptr;
};

// One rank registers no window.
void missing_window() {
  set_peer_deadline_ms(300);
  run_ranks(2, [](Rank& rank) {
    if (rank.index == 0) Window(rank, 4096);
  });
}

// One rank's window is larger.
void other_window() {
  run_ranks(2, [](Rank& rank) { Window(rank, rank.index == 0 ? 4096 : 8192); });
}

// Memory is freed that a communicator still knows.
void freed_window() {
  run_ranks(1, [](Rank& rank) { require_ok(ncclMemFree(Window(rank, 4096).data)); });
}

// A recorded call runs after its memory was deregistered.
void deregistered() {
  run_ranks(1, [](Rank& rank) {
    const Window window(rank, 4096);
    require_ok(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    require_ok(ncclAllReduce(window.data, window.data, 8, ncclFloat32, ncclSum, rank.comm, rank.stream));
    cudaGraph_t graph = nullptr;
    require_ok(cudaStreamEndCapture(rank.stream, &graph));
    cudaGraphExec_t exec = nullptr;
    require_ok(cudaGraphInstantiate(&exec, graph, 0));
    require_ok(ncclCommWindowDeregister(rank.comm, window.window));
    require_ok(cudaGraphLaunch(exec, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
  });
}

// The same while the other rank has not come yet.
void deregistered_early() {
  std::atomic<bool> gone{false};
  run_ranks(2, [&](Rank& rank) {
    const Window window(rank, 4096);
    while (rank.index == 1 && !gone) std::this_thread::yield();
    require_ok(ncclAllReduce(window.data, window.data, 8, ncclFloat32, ncclSum, rank.comm, rank.stream));
    if (rank.index == 0) require_ok(ncclCommWindowDeregister(rank.comm, window.window));
    gone = true;
    require_ok(cudaStreamSynchronize(rank.stream));
  });
}

// One rank sums from elsewhere in its window.
void other_place() {
  run_ranks(2, [](Rank& rank) {
    const Window window(rank, 4096);
    void* const data = static_cast<char*>(window.data) + 64 * rank.index;
    require_ok(ncclAllReduce(data, data, 8, ncclFloat32, ncclSum, rank.comm, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
  });
}

// One rank sums from memory that is in no window.
void half_in_window() {
  run_ranks(2, [](Rank& rank) {
    const Window window(rank, 4096);
    const NumberArray x(8);
    void* const data = rank.index == 0 ? window.data : x.data();
    require_ok(ncclAllReduce(data, data, 8, ncclFloat32, ncclSum, rank.comm, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
  });
}

// One rank leaves its all-reduce in a window out, and the other one aborts, with a library whose kernels do not see it.
void aborted_in_window() {
  set_nccl_version(22809);
  run_ranks(2, [](Rank& rank) {
    const Window window(rank, 4096);
    if (rank.index == 1) return;
    require_ok(ncclAllReduce(window.data, window.data, 8, ncclFloat32, ncclSum, rank.comm, rank.stream));
    require_ok(ncclCommAbort(rank.comm));
  });
}

// A rank is aborted and frees its memory while another one of its process lives.
void freed_before_the_last() {
  std::atomic<int> made{0};
  std::atomic<bool> freed{false};
  run_ranks(2, [&](Rank& rank) {
    const Window window(rank, 4096);
    ++made;
    while (made < 2) std::this_thread::yield();
    if (rank.index == 0) {
      require_ok(ncclCommAbort(rank.comm));
      rank.comm = nullptr;
      require_ok(ncclMemFree(window.data));
      freed = true;
    }
    while (!freed) std::this_thread::yield();
  });
}

// A function that the library of this version has not.
void too_new() {
  set_nccl_version(21805);
  void* data = nullptr;
  require_ok(ncclMemAlloc(&data, 4096));
}

}  // namespace
}  // namespace cudasim::test

int main(int count, char** arguments) {
  using namespace cudasim::test;
  const struct {
    const char* name;
    void (*run)();
  } faults[] = {{"mismatch", mismatch},
                {"missing_call", missing_call},
                {"missing_rank", missing_rank},
                {"crossed", crossed},
                {"missing_window", missing_window},
                {"other_window", other_window},
                {"freed_window", freed_window},
                {"deregistered", deregistered},
                {"deregistered_early", deregistered_early},
                {"other_place", other_place},
                {"half_in_window", half_in_window},
                {"aborted_in_window", aborted_in_window},
                {"freed_before_the_last", freed_before_the_last},
                {"too_new", too_new}};
  for (const auto& fault : faults) {
    if (count != 2 || std::strcmp(arguments[1], fault.name) != 0) continue;
    fault.run();
    std::puts("survived");
    return 0;
  }
  return 2;
}
