// Collective calls that hang or corrupt data on real hardware. Each runs in a process of its own, which the simulated
// NCCL must end with a report; nccl_test.cpp reads it.
#include <cstdio>
#include <cstring>

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

}  // namespace
}  // namespace cudasim::test

int main(int count, char** arguments) {
  using namespace cudasim::test;
  const struct {
    const char* name;
    void (*run)();
  } faults[] = {
      {"mismatch", mismatch}, {"missing_call", missing_call}, {"missing_rank", missing_rank}, {"crossed", crossed}};
  for (const auto& fault : faults) {
    if (count != 2 || std::strcmp(arguments[1], fault.name) != 0) continue;
    fault.run();
    std::puts("survived");
    return 0;
  }
  return 2;
}
