// The simulated NCCL: results of the collectives, equal on all ranks, in streams and in graphs; groups, refusals.
#include <csignal>
#include <cstring>

#include "tests/cudasim/cudasim.h"
#include "tests/cudasim/test/rank_threads.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace cudasim::test {
namespace {

void fresh_machine(int devices) {
  reset();
  set_device_count(devices);
}

std::vector<double> of_rank(int rank, std::int64_t numel) {
  return varied(numel, static_cast<std::uint32_t>(rank) + 1);
}

}  // namespace

TEST_CASE("NCCL: an all-reduce gives every rank the same sum, maximum or mean") {
  const int ranks = GENERATE(1, 2, 4);
  const ncclRedOp_t op = GENERATE(ncclSum, ncclMax, ncclAvg);
  const bool in_place = GENERATE(false, true);
  fresh_machine(ranks);
  std::vector<std::vector<double>> got(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Rank& rank) {
    const NumberArray send(of_rank(rank.index, 33)), receive(33);
    void* target = in_place ? send.data() : receive.data();
    require_ok(ncclAllReduce(send.data(), target, 33, ncclFloat32, op, rank.comm, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
    got[static_cast<std::size_t>(rank.index)] = (in_place ? send : receive).download();
  });
  std::vector<double> expected = of_rank(0, 33);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto values = of_rank(rank, 33);
    for (std::size_t i = 0; i < 33; ++i) {
      expected[i] = op == ncclMax ? std::max(expected[i], values[i]) : expected[i] + values[i];
    }
  }
  if (op == ncclAvg) {
    for (double& value : expected) value /= ranks;
  }
  for (const auto& values : got) CHECK(largest_error(values, expected) < 1e-6);
  for (const auto& values : got) CHECK(values == got[0]);
  CHECK(leaks().empty());
}

TEST_CASE("NCCL: bfloat16 sums are rounded once, 64-bit integers are exact") {
  fresh_machine(3);
  std::vector<double> small(3);
  std::vector<std::int64_t> large(3);
  run_ranks(3, [&](Rank& rank) {
    // 256 + 1 + 1: rounding after each addition would lose both ones.
    const NumberArray x(std::vector<double>{rank.index == 0 ? 256.0 : 1.0}, ElementType::bfloat16);
    const DeviceArray<std::int64_t> n(std::vector<std::int64_t>{(std::int64_t{1} << 60) + rank.index});
    require_ok(ncclAllReduce(x.data(), x.data(), 1, ncclBfloat16, ncclSum, rank.comm, rank.stream));
    require_ok(ncclAllReduce(n.data(), n.data(), 1, ncclInt64, ncclSum, rank.comm, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
    small[static_cast<std::size_t>(rank.index)] = x.download()[0];
    large[static_cast<std::size_t>(rank.index)] = n.values()[0];
  });
  for (const double value : small) CHECK(value == 258);
  for (const std::int64_t value : large) CHECK(value == (std::int64_t{3} << 60) + 3);
}

TEST_CASE("NCCL: broadcast, all-gather and reduce-scatter") {
  constexpr int kRanks = 3;
  fresh_machine(kRanks);
  std::vector<std::vector<double>> copied(kRanks), gathered(kRanks), scattered(kRanks);
  run_ranks(kRanks, [&](Rank& rank) {
    const auto own = of_rank(rank.index, 4);
    const NumberArray x(own), all(12), everything(of_rank(rank.index, 12)), part(4);
    const NumberArray source(own);
    require_ok(
        ncclBroadcast(rank.index == 1 ? source.data() : nullptr, x.data(), 4, ncclFloat32, 1, rank.comm, rank.stream));
    require_ok(ncclAllGather(source.data(), all.data(), 4, ncclFloat32, rank.comm, rank.stream));
    require_ok(ncclReduceScatter(everything.data(), part.data(), 4, ncclFloat32, ncclSum, rank.comm, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
    const auto index = static_cast<std::size_t>(rank.index);
    copied[index] = x.download();
    gathered[index] = all.download();
    scattered[index] = part.download();
  });
  std::vector<double> all;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto values = of_rank(rank, 4);
    all.insert(all.end(), values.begin(), values.end());
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    CHECK(copied[rank] == of_rank(1, 4));
    CHECK(gathered[rank] == all);
    for (std::size_t i = 0; i < 4; ++i) {
      double sum = 0;
      for (int other = 0; other < kRanks; ++other) sum += of_rank(other, 12)[rank * 4 + i];
      CHECK(scattered[rank][i] == Approx(sum));
    }
  }
}

TEST_CASE("NCCL: a captured all-reduce meets its peers at every launch of the graph") {
  fresh_machine(2);
  std::vector<double> got(2);
  std::vector<std::int64_t> nodes(2);
  run_ranks(2, [&](Rank& rank) {
    const NumberArray x(std::vector<double>{rank.index + 1.0});
    require_ok(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
    require_ok(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, rank.comm, rank.stream));
    cudaGraph_t graph = nullptr;
    require_ok(cudaStreamEndCapture(rank.stream, &graph));
    cudaGraphExec_t exec = nullptr;
    require_ok(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; ++i) require_ok(cudaGraphLaunch(exec, rank.stream));
    require_ok(cudaStreamSynchronize(rank.stream));
    got[static_cast<std::size_t>(rank.index)] = x.download()[0];
    nodes[static_cast<std::size_t>(rank.index)] = graph_counts(exec).collectives;
    require_ok(cudaGraphExecDestroy(exec));
    require_ok(cudaGraphDestroy(graph));
  });
  CHECK(got == std::vector<double>{12, 12});
  CHECK(nodes == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("NCCL: one thread drives several devices in a group, and is refused outside of one") {
  fresh_machine(2);
  ncclComm_t comms[2] = {};
  require_ok(ncclCommInitAll(comms, 2, nullptr));
  cudaStream_t streams[2] = {};
  for (int i = 0; i < 2; ++i) {
    require_ok(cudaSetDevice(i));
    require_ok(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
  }
  require_ok(cudaSetDevice(1));
  const NumberArray on_1(std::vector<double>{5});
  require_ok(cudaSetDevice(0));
  const NumberArray on_0(std::vector<double>{2});
  const void* data[2] = {on_0.data(), on_1.data()};
  const auto reduce = [&](int i) {
    return ncclAllReduce(data[i], const_cast<void*>(data[i]), 1, ncclFloat32, ncclSum, comms[i], streams[i]);
  };
  require_ok(ncclGroupStart());
  require_ok(reduce(0));
  require_ok(reduce(1));
  CHECK(counters().collectives == 0);
  require_ok(ncclGroupEnd());
  CHECK(counters().collectives == 2);
  for (int i = 0; i < 2; ++i) {
    require_ok(cudaSetDevice(i));
    require_ok(cudaStreamSynchronize(streams[i]));
  }
  require_ok(cudaSetDevice(0));
  CHECK(on_0.download()[0] == 7);

  require_ok(reduce(0));
  CHECK(reduce(1) == ncclInvalidUsage);
  CHECK(std::string(ncclGetLastError(comms[1])).find("group") != std::string::npos);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  // Aborting frees the stream of the operation whose peers never come.
  require_ok(ncclCommAbort(comms[0]));
  require_ok(cudaStreamSynchronize(streams[0]));
  require_ok(ncclCommDestroy(comms[1]));
  reset();
}

TEST_CASE("NCCL: an abort lets a rank go on whose peer never comes") {
  fresh_machine(2);
  run_ranks(2, [](Rank& rank) {
    const NumberArray x(4);
    if (rank.index == 0) require_ok(ncclAllReduce(x.data(), x.data(), 4, ncclFloat32, ncclSum, rank.comm, rank.stream));
    require_ok(ncclCommAbort(rank.comm));
    rank.comm = nullptr;
    require_ok(cudaStreamSynchronize(rank.stream));
  });
  CHECK(leaks().empty());
}

TEST_CASE("NCCL: what ranks know, and communicators that are made without waiting") {
  fresh_machine(2);
  ncclUniqueId id;
  require_ok(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t first = nullptr, second = nullptr;
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommInitRankConfig(&first, 2, id, 0, &config) == ncclInProgress);
  require_ok(ncclCommGetAsyncError(first, &state));
  CHECK(state == ncclInProgress);
  // Both ranks on one device, two with one number, another number of ranks.
  CHECK(ncclCommInitRankConfig(&second, 2, id, 1, &config) == ncclInvalidUsage);
  require_ok(cudaSetDevice(1));
  CHECK(ncclCommInitRankConfig(&second, 2, id, 0, &config) == ncclInvalidUsage);
  CHECK(ncclCommInitRankConfig(&second, 3, id, 1, &config) == ncclInvalidArgument);
  CHECK(ncclCommInitRankConfig(&second, 2, id, 1, &config) == ncclSuccess);
  require_ok(ncclCommGetAsyncError(first, &state));
  CHECK(state == ncclSuccess);
  int value = -1;
  require_ok(ncclCommCount(second, &value));
  CHECK(value == 2);
  require_ok(ncclCommUserRank(second, &value));
  CHECK(value == 1);
  require_ok(ncclCommCuDevice(second, &value));
  CHECK(value == 1);
  require_ok(ncclGetVersion(&value));
  CHECK(value == NCCL_VERSION_CODE);
  ncclConfig_t unmade{};
  CHECK(ncclCommInitRankConfig(&second, 1, id, 0, &unmade) == ncclInvalidArgument);
  fail_nth_library_call("ncclCommGetAsyncError", 1, ncclRemoteError);
  require_ok(ncclCommGetAsyncError(first, &state));
  CHECK(state == ncclRemoteError);
  require_ok(ncclCommDestroy(first));
  require_ok(ncclCommDestroy(second));
  CHECK(ncclCommDestroy(second) == ncclInvalidArgument);
  reset();
}

TEST_CASE("NCCL refuses wrong arguments") {
  fresh_machine(1);
  ncclComm_t comm = nullptr;
  require_ok(ncclCommInitAll(&comm, 1, nullptr));
  const NumberArray x(8);
  CHECK(ncclAllReduce(x.data(), x.data(), 8, ncclFloat8e4m3, ncclSum, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclAllReduce(x.data(), x.data(), 8, ncclFloat32, static_cast<ncclRedOp_t>(9), comm, nullptr) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(nullptr, x.data(), 8, ncclFloat32, ncclSum, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclAllReduce(x.data(), x.data<char>() + 4, 7, ncclFloat32, ncclSum, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclAllReduce(x.data(), x.data(), 9, ncclFloat32, ncclSum, comm, nullptr) == ncclUnhandledCudaError);
  CHECK(ncclBroadcast(x.data(), x.data(), 8, ncclFloat32, 1, comm, nullptr) == ncclInvalidArgument);
  CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr) == ncclSuccess);
  CHECK(std::strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
  fail_nth_library_call("ncclAllReduce", 1, ncclSystemError);
  CHECK(ncclAllReduce(x.data(), x.data(), 8, ncclFloat32, ncclSum, comm, nullptr) == ncclSystemError);
  require_ok(ncclCommDestroy(comm));
  CHECK(ncclAllReduce(x.data(), x.data(), 8, ncclFloat32, ncclSum, comm, nullptr) == ncclInvalidArgument);
}

TEST_CASE("NCCL: what would hang or mix up data ends the process and is named") {
  struct Planted {
    const char* name;
    const char* report;
  };
  const Planted planted = GENERATE(
      Planted{"mismatch", "mismatch: rank"}, Planted{"missing_call", "1 of 2 ranks came"},
      Planted{"missing_rank", "1 of 2 ranks came"}, Planted{"crossed", "cyclic wait"},
      Planted{"missing_window", "waits for others"}, Planted{"other_window", "registers a window of"},
      Planted{"freed_window", "is still registered"}, Planted{"deregistered", "has been deregistered before it ran"},
      Planted{"deregistered_early", "has been deregistered before it ran"},
      Planted{"other_place", "works at another place of windows"},
      Planted{"half_in_window", "works at another place of windows"},
      Planted{"aborted_in_window", "NCCL 22809's kernels there do not look at the flag"},
      Planted{"freed_before_the_last", "until all ranks of this process have ended"},
      Planted{"too_new", "NCCL 21805 does not have it"});
  CAPTURE(planted.name);
  const heddle::test::ProcessResult result =
      heddle::test::run_process(CUDASIM_PLANTED_COLLECTIVES, {.arguments = {planted.name}});
  CHECK(result.signal == SIGABRT);
  CAPTURE(result.err);
  CHECK(result.err.find(planted.report) != std::string::npos);
}

}  // namespace cudasim::test
