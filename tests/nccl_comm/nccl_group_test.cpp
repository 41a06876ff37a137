// What is NCCL's own beside the contract of all communicators: tensors of GPUs in calls that do not match or are late,
// calls in recorded steps, lost ranks while a GPU hangs, and errors of the library. On the simulated NCCL.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/step/step_graph.h"
#include "nccl_comm/inproc_communicator.h"
#include "nccl_comm/nccl_communicator.h"
#include "tests/cudasim/cudasim.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using comm::Communicator;
using comm::ReduceOp;
using heddle::test::contains;
using heddle::test::message_of;

namespace {

using testing::RankResults;

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};
constexpr comm::CommunicatorOptions kHasty{.timeout = std::chrono::seconds(1)};

std::vector<Device> gpus(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back(Device::cuda(i));
  return devices;
}

void run(int ranks, const comm::CommunicatorOptions& options, const std::function<void(Communicator&)>& body) {
  comm::run_rank_threads(comm::make_nccl_group(gpus(ranks), options), body);
}

// The message of the CommError that each rank met.
std::vector<std::string> errors(int ranks, const comm::CommunicatorOptions& options,
                                const std::function<void(Communicator&)>& body) {
  RankResults results(ranks);
  run(ranks, options, testing::noting_errors(results, body));
  return results.texts();
}

Device own_gpu(const Communicator& c) { return Device::cuda(c.rank()); }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int live_communicators() {
  const std::vector<cudasim::Leak> all = cudasim::leaks();
  return static_cast<int>(std::count_if(all.begin(), all.end(),
                                        [](const cudasim::Leak& leak) { return leak.kind == "NCCL communicator"; }));
}

// A step with an all-reduce, recorded on every rank: its first run is called, later ones are launched.
struct RecordedSum {
  explicit RecordedSum(Communicator& of)
      : communicator(of), graph(own_gpu(of)), x(Tensor::full({4}, 1, DType::f32, own_gpu(of))) {}
  void step() {
    communicator.check_alive();
    graph.run({.input = {4}}, [this] { communicator.all_reduce(x, ReduceOp::sum, "bucket 4"); });
  }

  Communicator& communicator;
  step::StepGraph graph;
  Tensor x;
};

}  // namespace

TEST_CASE("NCCL: ranks that disagree about a tensor of the GPU are told both sides, and no tensor changes") {
  for (const std::int64_t other : {409'598, 409'600}) {
    const auto begin = std::chrono::steady_clock::now();
    RankResults first(2);
    const auto texts = errors(2, kPatient, [&](Communicator& c) {
      Tensor x = Tensor::full({c.rank() == 0 ? 409'600 : other}, 5, DType::f32, own_gpu(c));
      try {
        c.all_reduce(x, ReduceOp::sum, "gradients");
      } catch (const CommError&) {
        first.add(c.rank(), join_text(x.narrow(0, 1).item()));
        throw;
      }
      first.add(c.rank(), join_text(x.narrow(0, 1).item()));
    });
    CHECK(seconds_since(begin) < 30);
    for (const std::string& text : texts) {
      if (other == 409'600) {
        CHECK(text == "");
        continue;
      }
      contains(text, "rank 0 calls all_reduce of 409600 f32 on a GPU (sum)");
      contains(text, "rank 1 calls all_reduce of 409598 f32 on a GPU (sum)");
    }
    for (const std::string& value : first.texts()) CHECK(value == (other == 409'600 ? "10" : "5"));
  }
}

TEST_CASE("NCCL: another dtype, operation, root or call is found on the GPU too") {
  const auto both = [](const std::function<void(Communicator&)>& body, const std::string& a, const std::string& b) {
    for (const std::string& text : errors(3, kPatient, body)) {
      contains(text, a);
      contains(text, b);
    }
  };
  both(
      [](Communicator& c) {
        Tensor x = Tensor::zeros({8}, c.rank() == 1 ? DType::bf16 : DType::f32, own_gpu(c));
        c.all_reduce(x, ReduceOp::sum);
      },
      "8 f32", "rank 1 calls all_reduce of 8 bf16");
  both(
      [](Communicator& c) {
        Tensor x = Tensor::zeros({8}, DType::f32, own_gpu(c));
        c.all_reduce(x, c.rank() == 2 ? ReduceOp::max : ReduceOp::sum);
      },
      "(sum)", "(max)");
  both(
      [](Communicator& c) {
        Tensor x = Tensor::zeros({8}, DType::f32, own_gpu(c));
        c.broadcast(x, c.rank() == 1 ? 1 : 0);
      },
      "from rank 0", "from rank 1");
  both(
      [](Communicator& c) {
        Tensor x = Tensor::zeros({8}, DType::f32, own_gpu(c));
        if (c.rank() == 1) return c.barrier();
        c.broadcast(x, 0);
      },
      "broadcast of 8 f32", "barrier");
  both(
      [](Communicator& c) {
        Tensor x = Tensor::zeros({8}, DType::f32, c.rank() == 1 ? Device::cpu() : own_gpu(c));
        c.all_reduce(x, ReduceOp::sum);
      },
      "on a GPU", "on the CPU");
}

TEST_CASE("NCCL: a rank that is late with a tensor of the GPU is named") {
  const auto texts = errors(3, kHasty, [](Communicator& c) {
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    Tensor x = Tensor::zeros({7}, DType::f32, own_gpu(c));
    c.all_reduce(x, ReduceOp::sum, "bucket 4");
  });
  for (const std::string& text : texts) {
    contains(text, "all_reduce of 7 f32 on a GPU (sum) (bucket 4): rank 1 of 3 did not come within 1 s");
  }
}

TEST_CASE("NCCL: two ranks on one GPU, a CPU, and a GPU of another rank are refused") {
  const std::string twice = message_of<InvalidArgument>([] {
    comm::make_nccl_group({Device::cuda(0), Device::cuda(1), Device::cuda(0)}, kPatient);
  });
  contains(twice, "ranks 0 and 2 are both on cuda:0");
  CHECK_THROWS_AS(comm::make_nccl_group({Device::cpu()}, kPatient), InvalidArgument);
  run(2, kPatient, [](Communicator& c) {
    Tensor x = Tensor::zeros({2}, DType::f32, Device::cuda(1 - c.rank()));
    try {
      c.all_reduce(x, ReduceOp::sum);
    } catch (const InvalidArgument&) {
      return;
    }
    throw Error("a tensor of another GPU was taken");
  });
  CHECK(live_communicators() == 0);
}

TEST_CASE("NCCL: a call in a recorded step is one node of its graph, and meets its peers at each launch") {
  std::vector<double> sums(4);
  std::vector<cudasim::GraphCounts> graphs(4);
  run(4, kPatient, [&](Communicator& c) {
    RecordedSum sum(c);
    for (int i = 0; i < 5; ++i) sum.step();
    sums[static_cast<std::size_t>(c.rank())] = sum.x.narrow(0, 1).item();
    graphs[static_cast<std::size_t>(c.rank())] = cudasim::last_launched_graph();
  });
  for (const double sum : sums) CHECK(sum == 1024);
  for (const cudasim::GraphCounts& graph : graphs) {
    CHECK(graph.collectives == 1);
    CHECK(graph.kernels + graph.copies + graph.fills == 0);
  }
  CHECK(live_communicators() == 0);
}

TEST_CASE("NCCL: ranks that record different calls are told when they record them") {
  const auto texts = errors(2, kPatient, [](Communicator& c) {
    Tensor x = Tensor::zeros({8}, DType::f32, own_gpu(c)), y = x.narrow(0, 6);
    step::StepGraph graph(own_gpu(c));
    int calls = 0;
    const auto step = [&] { c.all_reduce(++calls > 1 && c.rank() == 1 ? y : x, ReduceOp::sum); };
    for (int i = 0; i < 3; ++i) graph.run({.input = {8}}, step);
  });
  for (const std::string& text : texts) {
    contains(text, "rank 0 calls all_reduce of 8 f32 on a GPU (sum) in a recorded step");
    contains(text, "rank 1 calls all_reduce of 6 f32 on a GPU (sum) in a recorded step");
  }
}

TEST_CASE("NCCL: a peer that does not launch a recorded step is named in time, and what is recorded can be dropped") {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<int> more{0};
  const auto texts = errors(2, kHasty, [&](Communicator& c) {
    RecordedSum sum(c);
    for (int i = 0; i < 3; ++i) sum.step();
    if (c.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::seconds(3));
    } else {
      sum.step();
    }
    try {
      sum.x.to_vector<float>();
      c.barrier();
    } catch (const CommError&) {
      // The group is of no use any more, on this rank and on the other; the GPU is.
      try {
        sum.step();
      } catch (const CommError&) {
        ++more;
      }
      Tensor::zeros({4}, DType::f32, own_gpu(c)).to_vector<float>();
      throw;
    }
  });
  CHECK(seconds_since(begin) < 10);
  CHECK(more == 2);
  for (const std::string& text : texts) {
    contains(text, "the work of cuda:0, the last call in it all_reduce of 4 f32");
    contains(text, "(bucket 4)");
    contains(text, "rank 1 of 2 did not come");
  }
  CHECK(live_communicators() == 0);
}

TEST_CASE("NCCL: abort() from another thread ends a wait for a recorded step at once") {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> texts(2);
  auto ends = comm::make_nccl_group(gpus(2), kPatient);
  Communicator& second = *ends[1];
  std::thread killer;
  std::atomic<bool> waits{false};
  RankResults results(2);
  comm::run_rank_threads(std::move(ends), testing::noting_errors(results, [&](Communicator& c) {
                           RecordedSum sum(c);
                           for (int i = 0; i < 3; ++i) sum.step();
                           if (c.rank() == 1) {
                             while (!waits) std::this_thread::yield();
                             killer = std::thread([&] { second.abort("somebody has had enough"); });
                             killer.join();
                             sum.step();
                             return;
                           }
                           sum.step();
                           waits = true;
                           sum.x.to_vector<float>();
                         }));
  CHECK(seconds_since(begin) < 20);
  for (const std::string& text : results.texts()) CHECK(text == "somebody has had enough");
  CHECK(live_communicators() == 0);
}

TEST_CASE("NCCL: errors of the library, at once or later, end the group and say what failed") {
  struct Failure {
    const char* function;
    int status;
    const char* text;
  };
  for (const Failure& failure : {Failure{"ncclAllReduce", ncclSystemError, "ncclAllReduce failed with ncclSystemError"},
                                 Failure{"ncclCommGetAsyncError", ncclRemoteError, "failed with ncclRemoteError"}}) {
    CAPTURE(failure.function);
    const auto texts = errors(2, kPatient, [&](Communicator& c) {
      Tensor x = Tensor::zeros({4}, DType::f32, own_gpu(c));
      c.all_reduce(x, ReduceOp::sum);
      c.barrier();
      if (c.rank() == 0) cudasim::fail_nth_library_call(failure.function, 1, failure.status);
      c.barrier();
      c.all_reduce(x, ReduceOp::sum, "bucket 4");
      c.barrier();
    });
    cudasim::clear_failures();
    for (const std::string& text : texts) {
      contains(text, "all_reduce of 4 f32");
      contains(text, "bucket 4");
      contains(text, failure.text);
    }
    CHECK(live_communicators() == 0);
  }
  cudasim::fail_nth_library_call("ncclCommInitRankConfig", 2, ncclInternalError);
  contains(message_of<CommError>([] { comm::make_nccl_group(gpus(2), kPatient); }),
           "ncclCommInitRankConfig failed with ncclInternalError");
  cudasim::clear_failures();
  CHECK(live_communicators() == 0);
}

TEST_CASE("NCCL: a rank that never connects is named when the deadline passes") {
  for (const bool takes_id : {false, true}) {
    auto hosts = comm::make_inproc_group(2, kHasty),
         roll_call = comm::make_inproc_group(2, comm::roll_call_options(kHasty));
    std::thread other;
    if (takes_id) {
      // It takes part until all have the id, and no more.
      other = std::thread([&] {
        Tensor id = Tensor::empty({NCCL_UNIQUE_ID_BYTES}, DType::u8);
        hosts[1]->broadcast(id, 0);
      });
    }
    const std::string text = message_of<CommError>([&] {
      comm::make_nccl_communicator({.device = Device::cuda(0),
                                    .communicator = kHasty,
                                    .hosts = std::move(hosts[0]),
                                    .roll_call = std::move(roll_call[0])});
    });
    if (other.joinable()) other.join();
    contains(text, takes_id ? "connecting rank 0 of 2 on cuda:0" : "NCCL's id of the group");
    contains(text, "rank 1 of 2 did not come");
    CHECK(live_communicators() == 0);
  }
}
