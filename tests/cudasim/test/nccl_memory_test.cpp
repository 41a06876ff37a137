// Memory of the simulated NCCL: what it registers and refuses, and which collectives lie in windows. What ends the
// process is in nccl_test.cpp.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/rank_threads.h"
#include "tests/support/catch.h"

namespace cudasim::test {
namespace {

void fresh_machine(int devices) {
  reset();
  set_device_count(devices);
}

}  // namespace

TEST_CASE("NCCL: windows need memory of ncclMemAlloc, and nothing is registered twice") {
  fresh_machine(1);
  ncclComm_t comm = nullptr;
  require_ok(ncclCommInitAll(&comm, 1, nullptr));
  void* memory = nullptr;
  require_ok(ncclMemAlloc(&memory, 5000));
  ncclWindow_t window = nullptr, other = nullptr;
  require_ok(ncclCommWindowRegister(comm, memory, 5000, &window, NCCL_WIN_COLL_SYMMETRIC));
  CHECK(window != nullptr);
  CHECK(ncclCommWindowRegister(comm, static_cast<char*>(memory) + 16, 16, &other, 0) == ncclInvalidArgument);
  CHECK(ncclCommWindowRegister(comm, memory, 4096, &other, 0) == ncclInvalidUsage);
  const NumberArray ordinary(2048);
  CHECK(ncclCommWindowRegister(comm, ordinary.data(), 4096, &other, 0) == ncclInvalidArgument);
  void *handle = nullptr, *twice = nullptr;
  require_ok(ncclCommRegister(comm, ordinary.data(), 4096, &handle));
  CHECK(ncclCommRegister(comm, ordinary.data<char>() + 256, 256, &twice) == ncclInvalidUsage);
  CHECK(leaks().size() == 6);
  CHECK(ncclCommDeregister(comm, window) == ncclInvalidArgument);
  CHECK(ncclCommWindowDeregister(comm, static_cast<ncclWindow_t>(handle)) == ncclInvalidArgument);
  require_ok(ncclCommDeregister(comm, handle));
  CHECK(ncclCommDeregister(comm, handle) == ncclInvalidArgument);
  require_ok(ncclCommWindowDeregister(comm, window));
  require_ok(ncclCommDestroy(comm));
  CHECK(ncclMemFree(ordinary.data()) == ncclInvalidArgument);
  require_ok(ncclMemFree(memory));
}

TEST_CASE("NCCL: a communicator is not destroyed with something registered, but aborted") {
  fresh_machine(1);
  ncclComm_t comm = nullptr;
  require_ok(ncclCommInitAll(&comm, 1, nullptr));
  void *memory = nullptr, *handle = nullptr;
  require_ok(ncclMemAlloc(&memory, 4096));
  require_ok(ncclCommRegister(comm, memory, 4096, &handle));
  CHECK(ncclCommDestroy(comm) == ncclInvalidUsage);
  require_ok(ncclCommAbort(comm));
  require_ok(ncclMemFree(memory));
  CHECK(leaks().empty());
}

TEST_CASE("NCCL: without waiting a window is there once all ranks have come to it") {
  fresh_machine(2);
  ncclUniqueId id;
  require_ok(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[2] = {};
  void* memory[2] = {};
  ncclWindow_t windows[2] = {};
  for (int i = 0; i < 2; ++i) {
    require_ok(cudaSetDevice(i));
    const ncclResult_t result = ncclCommInitRankConfig(&comms[i], 2, id, i, &config);
    CHECK(result == (i == 0 ? ncclInProgress : ncclSuccess));
    require_ok(ncclMemAlloc(&memory[i], 4096));
  }
  for (int i = 0; i < 2; ++i) {
    const ncclResult_t result = ncclCommWindowRegister(comms[i], memory[i], 4096, &windows[i], NCCL_WIN_COLL_SYMMETRIC);
    CHECK(result == (i == 0 ? ncclInProgress : ncclSuccess));
    ncclResult_t state = ncclSuccess;
    require_ok(ncclCommGetAsyncError(comms[0], &state));
    CHECK(state == result);
    CHECK((windows[0] != nullptr) == (i == 1));
  }
  for (int i = 0; i < 2; ++i) {
    require_ok(ncclCommWindowDeregister(comms[i], windows[i]));
    require_ok(ncclCommDestroy(comms[i]));
    require_ok(ncclMemFree(memory[i]));
  }
  CHECK(leaks().empty());
}

TEST_CASE("NCCL: a collective counts as in windows if it is in one, and else works from where its numbers are") {
  const bool in_window = GENERATE(true, false);
  fresh_machine(2);
  std::vector<int> sums(2);
  run_ranks(2, [&](Rank& rank) {
    const auto index = static_cast<std::size_t>(rank.index);
    void* memory = nullptr;
    ncclWindow_t window = nullptr;
    require_ok(ncclMemAlloc(&memory, 4096));
    require_ok(ncclCommWindowRegister(rank.comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    const NumberArray ordinary(16);
    void* const data = in_window ? static_cast<char*>(memory) + 64 : ordinary.data();
    require_ok(cudaMemsetAsync(data, 1, sizeof(int), rank.stream));
    require_ok(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, rank.comm, rank.stream));
    require_ok(cudaMemcpyAsync(&sums[index], data, sizeof(int), cudaMemcpyDeviceToHost, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
    require_ok(ncclCommWindowDeregister(rank.comm, window));
    require_ok(ncclMemFree(memory));
  });
  CHECK(sums == std::vector<int>{0x02020202, 0x02020202});
  CHECK(counters().collectives == 2);
  CHECK(counters().collectives_in_windows == (in_window ? 2 : 0));
}

TEST_CASE(
    "NCCL: since 2.29.7 a communicator is aborted in a window too, and keeps its memory until the last one ends") {
  fresh_machine(2);
  set_nccl_version(22907);
  std::vector<void*> memory(2);
  std::atomic<int> aborted{0};
  run_ranks(2, [&](Rank& rank) {
    const auto index = static_cast<std::size_t>(rank.index);
    ncclWindow_t window = nullptr;
    require_ok(ncclMemAlloc(&memory[index], 4096));
    require_ok(ncclCommWindowRegister(rank.comm, memory[index], 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
    if (rank.index == 0) {
      require_ok(ncclAllReduce(memory[0], memory[0], 8, ncclFloat32, ncclSum, rank.comm, rank.stream));
    }
    require_ok(ncclCommAbort(rank.comm));
    rank.comm = nullptr;
    ++aborted;
    while (aborted < 2) std::this_thread::yield();
    require_ok(ncclMemFree(memory[index]));
  });
  set_nccl_version(0);
  CHECK(leaks().empty());
}

TEST_CASE("NCCL: a deregistration that waits for a peer ends when the communicator is aborted") {
  fresh_machine(1);
  ncclComm_t comm = nullptr;
  require_ok(ncclCommInitAll(&comm, 1, nullptr));
  void *memory = nullptr, *handle = nullptr;
  require_ok(ncclMemAlloc(&memory, 4096));
  require_ok(ncclCommRegister(comm, memory, 4096, &handle));
  fail_nth_library_call("ncclCommDeregister", 1, ncclInProgress);
  std::atomic<ncclResult_t> result{ncclSuccess};
  std::thread waiting([&] { result = ncclCommDeregister(comm, handle); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(result == ncclSuccess);
  require_ok(ncclCommAbort(comm));
  waiting.join();
  CHECK(result == ncclInternalError);
  clear_failures();
  require_ok(ncclMemFree(memory));
  CHECK(leaks().empty());
}

}  // namespace cudasim::test
