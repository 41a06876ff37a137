// Runs the ranks of a simulated NCCL communicator as threads of a test. Assertions belong into the main thread: ranks
// return what they found.
#pragma once

#include <nccl.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/cudasim/test/number_array.h"

namespace cudasim::test {

inline void require_ok(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(std::string("NCCL: ") + ncclGetErrorString(result));
}

// One rank on its device, with a communicator over all of them and a stream.
struct Rank {
  int index = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

// Makes a communicator of so many ranks, one thread and device each, runs body in every thread, and takes all down.
// Throws what a rank threw.
inline void run_ranks(int count, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  require_ok(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(count));
  for (int index = 0; index < count; ++index) {
    threads.emplace_back([&, index] {
      try {
        Rank rank{.index = index};
        require_ok(cudaSetDevice(index));
        require_ok(ncclCommInitRank(&rank.comm, count, id, index));
        require_ok(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
        body(rank);
        require_ok(cudaStreamSynchronize(rank.stream));
        require_ok(cudaStreamDestroy(rank.stream));
        if (rank.comm != nullptr) require_ok(ncclCommDestroy(rank.comm));
      } catch (...) {
        failures[static_cast<std::size_t>(index)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace cudasim::test
