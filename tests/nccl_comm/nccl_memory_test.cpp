// Memory that NCCL exchanges gradients from: that it is used, changes no bit, is refused cleanly, and is given back in
// order. On the simulated NCCL, which ends the process where a real one would touch memory that is gone.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "engine/nn/init.h"
#include "engine/optim/sgd.h"
#include "engine/step/step_graph.h"
#include "nccl_comm/data_parallel.h"
#include "nccl_comm/inproc_communicator.h"
#include "nccl_comm/nccl_communicator.h"
#include "nccl_comm/rank_threads.h"
#include "tests/cudasim/cudasim.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/nccl_comm/small_model.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"

using namespace heddle;
using comm::Communicator;
using comm::ReduceOp;
using heddle::test::contains;

namespace {

using testing::RankResults;
using testing::SmallModel;

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};
constexpr comm::CommunicatorOptions kHasty{.timeout = std::chrono::seconds(1)};
constexpr int kRanks = 4;
constexpr int kSteps = 5;
// The first NCCL whose windows are used, and one whose are not.
constexpr int kWithWindows = 22907, kWithout = 22809;

// The setting, and the library's version, while it lives.
struct Asking {
  explicit Asking(const char* memory, int nccl_version = kWithWindows) {
    ::setenv("HEDDLE_NCCL_MEMORY", memory, 1);
    cudasim::set_nccl_version(nccl_version);
  }
  ~Asking() {
    ::unsetenv("HEDDLE_NCCL_MEMORY");
    cudasim::set_nccl_version(0);
    cudasim::clear_failures();
  }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
};

void run(int ranks, const comm::CommunicatorOptions& options, const std::function<void(Communicator&)>& body) {
  std::vector<Device> devices;
  for (int i = 0; i < ranks; ++i) devices.push_back(Device::cuda(i));
  comm::run_rank_threads(comm::make_nccl_group(devices, options), body);
}

Device own_gpu(const Communicator& c) { return Device::cuda(c.rank()); }

// What is alive of memory, registrations and communicators of NCCL.
std::vector<std::string> left_of_nccl() {
  std::vector<std::string> kinds;
  for (const cudasim::Leak& leak : cudasim::leaks()) {
    if (leak.kind.starts_with("NCCL")) kinds.push_back(leak.kind);
  }
  return kinds;
}

std::string memory_of_a_tensor(int ranks) {
  RankResults results(ranks);
  run(ranks, kPatient, [&](Communicator& c) {
    Tensor x = c.make_exchanged({3, 5}, DType::f32, own_gpu(c));
    Backend& backend = backend_for(x.device());
    backend.fill(x, c.rank() + 1);
    c.all_reduce(x, ReduceOp::sum, "gradients");
    const std::vector<float> sums = x.to_vector<float>();
    const float expected = static_cast<float>(ranks * (ranks + 1) / 2);
    const bool right = std::all_of(sums.begin(), sums.end(), [&](float sum) { return sum == expected; });
    results.add(c.rank(), right ? c.exchanged_memory() : "wrong sums");
  });
  std::string text = results.texts()[0];
  for (const std::string& other : results.texts()) {
    if (other != text) text += " | " + other;
  }
  return text;
}

struct Trained {
  std::vector<float> weights;
  std::string memory;
  cudasim::Counters counters;
};

// Rank 0's weights after some recorded steps; all ranks must have the same.
Trained train(DType reduce_dtype) {
  std::vector<std::vector<float>> weights(kRanks);
  RankResults results(kRanks);
  cudasim::reset_counters();
  run(kRanks, kPatient, [&](Communicator& c) {
    SmallModel model({12, 9, 4}, 0.0);
    model.to(own_gpu(c));
    nn::ParameterBuffer parameters(model);
    Philox random(3);
    nn::init::uniform(parameters.data(), -0.5, 0.5, random);
    const std::vector<float> before = parameters.data().to_vector<float>();
    optim::Sgd optimizer(parameters, 0.1, {.momentum = 0.9});
    comm::DataParallel parallel(model, parameters, c,
                                {.buckets = {.bucket_nbytes = 200, .last_nbytes = 100}, .reduce_dtype = reduce_dtype});
    std::vector<float> pixels(3 * 12);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(c.rank()) * 5) % 11) / 11.0f;
    }
    const Tensor images = Tensor::from_values(pixels, {3, 12}, own_gpu(c));
    const Tensor labels = Tensor::from_values(std::vector<std::int64_t>{0, c.rank(), 3}, {3}, own_gpu(c));
    step::StepGraph graph(own_gpu(c));
    for (int i = 0; i < kSteps; ++i) {
      c.check_alive();
      graph.run({.input = {3, 12}}, [&] {
        optimizer.zero_grad();
        const Variable loss = ops::cross_entropy(model.forward(images), labels,
                                                 {.reduction = ops::Reduction::sum, .stats = parameters.tail()});
        backward(loss, parallel.hook());
        parallel.finish();
        optimizer.step({.divide_by_weight_sum = true});
      });
    }
    weights[static_cast<std::size_t>(c.rank())] = parameters.data().to_vector<float>();
    results.add(c.rank(), weights[static_cast<std::size_t>(c.rank())] == before ? "untrained" : c.exchanged_memory());
  });
  for (const auto& others : weights) CHECK(others == weights[0]);
  for (const auto& text : results.texts()) contains(text, results.texts()[0].substr(0, 15));
  return {weights[0], results.texts()[0], cudasim::counters()};
}

}  // namespace

TEST_CASE("NCCL: gradients lie in windows, and recorded trainings have the bits of those from ordinary memory") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    CAPTURE(dtype);
    Trained in_windows;
    {
      const Asking windows("windows");
      in_windows = train(dtype);
    }
    CHECK(in_windows.memory == "a window of NCCL's memory");
    // All calls on gradients: what is outside are hashes, weights at the start and, beside bf16, the tail.
    const std::int64_t buckets = kRanks * kSteps * 2;
    CHECK(in_windows.counters.collectives_in_windows >= buckets);
    const Trained ordinary = train(dtype);
    CHECK(ordinary.memory == "ordinary memory");
    CHECK(ordinary.counters.collectives_in_windows == 0);
    CHECK(ordinary.counters.collectives == in_windows.counters.collectives);
    CHECK(ordinary.weights == in_windows.weights);
    {
      const Asking registered("registered", kWithout);
      const Trained in_buffers = train(dtype);
      CHECK(in_buffers.memory == "registered memory of NCCL");
      CHECK(in_buffers.weights == ordinary.weights);
    }
    CHECK(left_of_nccl().empty());
  }
}

TEST_CASE("NCCL: where one rank is refused memory all do without, and say why") {
  const Asking windows("windows");
  cudasim::fail_nth_library_call("ncclMemAlloc", 2, ncclSystemError);
  const std::string text = memory_of_a_tensor(3);
  contains(text, "ordinary memory: NCCL: ncclMemAlloc failed with ncclSystemError");
  contains(text, "ordinary memory: 1 of 3 ranks, not this one, got no other");
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: memory is ordinary unless the setting asks for more, and it names what it may be") {
  CHECK(memory_of_a_tensor(2) == "ordinary memory");
  CHECK(comm::nccl_memory() == "ordinary memory");
  {
    const Asking ordinary("ordinary");
    CHECK(memory_of_a_tensor(2) == "ordinary memory");
  }
  const Asking wrong("window");
  const std::string expected = "HEDDLE_NCCL_MEMORY is 'window'; expected ordinary, registered or windows";
  CHECK_THROWS_AS(memory_of_a_tensor(2), InvalidArgument);
  CHECK_THROWS_WITH(memory_of_a_tensor(2), expected);
  CHECK(comm::nccl_memory() == expected);
}

TEST_CASE("NCCL: an older library has registered buffers, or only ordinary memory") {
  {
    const Asking windows("windows");
    CHECK(memory_of_a_tensor(2) == "a window of NCCL's memory");
    CHECK(comm::nccl_memory() == "windows");
  }
  {
    const Asking windows("windows", kWithout);
    contains(memory_of_a_tensor(2), "registered memory of NCCL, without a window: windows need NCCL 2.29.7");
    contains(comm::nccl_memory(), "registered buffers: windows need NCCL 2.29.7, for in NCCL 2.28.9 a lost rank");
  }
  {
    const Asking registered("registered");
    CHECK(memory_of_a_tensor(2) == "registered memory of NCCL");
    CHECK(comm::nccl_memory() == "registered buffers");
  }
  for (const char* const wanted : {"registered", "windows"}) {
    const Asking asking(wanted, 21805);
    CHECK(memory_of_a_tensor(2) == "ordinary memory: NCCL 2.18.5 has no memory of its own, NCCL 2.19.0 has");
    contains(comm::nccl_memory(), "ordinary memory: NCCL 2.18.5");
  }
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: ranks with different settings use what the weakest of them has") {
  using comm::NcclMemoryUse;
  const bool ordinary = GENERATE(true, false);
  const std::string expected = ordinary ? "ordinary memory" : "registered memory of NCCL";
  cudasim::set_nccl_version(kWithWindows);
  auto hosts = comm::make_inproc_group(2, kPatient), roll_call = comm::make_inproc_group(2, kPatient);
  RankResults results(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    comm::NcclOptions options{.device = Device::cuda(rank),
                              .communicator = kPatient,
                              .hosts = std::move(hosts[index]),
                              .roll_call = std::move(roll_call[index]),
                              .memory = NcclMemoryUse::windows};
    if (rank == 1) options.memory = ordinary ? NcclMemoryUse::ordinary : NcclMemoryUse::registered;
    threads.emplace_back([&results, rank, mine = std::move(options)]() mutable {
      const auto c = comm::make_nccl_communicator(std::move(mine));
      Tensor x = c->make_exchanged({4}, DType::f32, own_gpu(*c));
      c->all_reduce(x, ReduceOp::sum);
      results.add(rank, c->exchanged_memory());
    });
  }
  for (std::thread& thread : threads) thread.join();
  cudasim::set_nccl_version(0);
  contains(results.texts()[0], expected);
  contains(results.texts()[0], "another rank's HEDDLE_NCCL_MEMORY or NCCL has it so");
  CHECK(results.texts()[1] == expected);
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: a window that all ranks are refused becomes a buffer, and a buffer that is refused is memory still") {
  {
    const Asking windows("windows");
    for (int i = 0; i < 2; ++i) cudasim::fail_nth_library_call("ncclCommWindowRegister", 1, ncclInvalidUsage);
    contains(memory_of_a_tensor(2), "registered memory of NCCL, without a window: NCCL: ncclCommWindowRegister failed");
  }
  const Asking registered("registered");
  for (int i = 0; i < 2; ++i) cudasim::fail_nth_library_call("ncclCommRegister", 1, ncclInvalidUsage);
  contains(memory_of_a_tensor(2), "NCCL's memory, not registered: NCCL: ncclCommRegister failed");
  cudasim::clear_failures();
  for (int i = 0; i < 2; ++i) cudasim::fail_nth_library_call("ncclCommRegister, without a handle", 1, ncclInvalidUsage);
  contains(memory_of_a_tensor(2), "NCCL's memory, not registered: NCCL registers nothing here");
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: a window that only some ranks are refused, and different sizes, end the group with the reason") {
  const auto texts_of = [](const std::function<void(Communicator&)>& body) {
    RankResults results(2);
    run(2, kPatient, testing::noting_errors(results, body));
    return results.texts();
  };
  const auto make = [](Communicator& c) { c.make_exchanged({8}, DType::f32, own_gpu(c)); };
  {
    const Asking windows("windows");
    cudasim::fail_nth_library_call("ncclCommWindowRegister", 2, ncclInvalidUsage);
    for (const std::string& text : texts_of(make)) {
      contains(text, "NCCL refused 1 of 2 ranks a window of memory for exchanges");
      contains(text, "HEDDLE_NCCL_MEMORY=ordinary");
    }
  }
  {
    // The refusal comes while the other rank waits for its window.
    const Asking windows("windows");
    cudasim::fail_nth_library_call("ncclCommWindowRegister, behind the call", 2, ncclSystemError);
    const auto begin = std::chrono::steady_clock::now();
    for (const std::string& text : texts_of(make)) {
      contains(text, "registering a window of memory for exchanges");
      contains(text, "ncclSystemError");
      contains(text, "HEDDLE_NCCL_MEMORY=ordinary in the environment does without");
    }
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  }
  for (const std::string& text :
       texts_of([](Communicator& c) { c.make_exchanged({8 + c.rank()}, DType::f32, own_gpu(c)); })) {
    contains(text, "the ranks ask for different memory for exchanges");
    contains(text, "others for 32 to 36");
  }
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: ranks that exchange from different places of such memory are told so, and nothing is exchanged") {
  const Asking asking(GENERATE("registered", "windows"));
  // Rank 1's tensor: further behind, in the other block, or in ordinary memory.
  for (const int wrong : {0, 1, 2}) {
    CAPTURE(wrong);
    RankResults results(2);
    run(2, kPatient, testing::noting_errors(results, [wrong](Communicator& c) {
          Tensor first = c.make_exchanged({8}, DType::f32, own_gpu(c));
          Tensor second = c.make_exchanged({8}, DType::f32, own_gpu(c));
          Tensor ordinary = Tensor::zeros({4}, DType::f32, own_gpu(c));
          Tensor at_the_same = first.narrow(4, 4);
          c.all_reduce(at_the_same, ReduceOp::sum);
          Tensor x = first.narrow(0, 4);
          if (c.rank() == 1) x = wrong == 0 ? at_the_same : wrong == 1 ? second.narrow(0, 4) : ordinary;
          c.all_reduce(x, ReduceOp::sum, "gradients");
        }));
    const char* const places[] = {"(sum) at byte 16 of exchanged memory", "(sum) at byte 32 of exchanged memory",
                                  "rank 1 calls all_reduce of 4 f32 on a GPU (sum)"};
    for (const std::string& text : results.texts()) {
      contains(text, "rank 0 calls all_reduce of 4 f32 on a GPU (sum) at byte 0 of exchanged memory");
      contains(text, places[wrong]);
    }
  }
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: memory that nobody uses stays registered until its group ends, and outlives it with a tensor") {
  const Asking asking(GENERATE("registered", "windows"));
  std::vector<Tensor> kept(2);
  std::vector<std::ptrdiff_t> most(2);
  run(2, kPatient, [&](Communicator& c) {
    const auto index = static_cast<std::size_t>(c.rank());
    kept[index] = c.make_exchanged({1000}, DType::f32, own_gpu(c));
    for (int i = 0; i < 3; ++i) c.make_exchanged({1000}, DType::f32, own_gpu(c));
    c.barrier();
    const std::vector<std::string> kinds = left_of_nccl();
    most[index] = std::min(std::count(kinds.begin(), kinds.end(), "NCCL memory"),
                           std::count(kinds.begin(), kinds.end(), "NCCL registration"));
    c.barrier();
  });
  for (const std::ptrdiff_t count : most) CHECK(count == 8);
  CHECK(left_of_nccl() == std::vector<std::string>{"NCCL memory", "NCCL memory"});
  for (Tensor& tensor : kept) {
    CHECK(tensor.to_vector<float>() == std::vector<float>(1000, 0.0f));
    tensor = Tensor();
  }
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: a rank that a stopped peer holds up while it leaves ends by force within its time") {
  const Asking registered("registered");
  // As a deregistration that waits for the peer.
  cudasim::fail_nth_library_call("ncclCommDeregister", 1, ncclInProgress);
  const auto begin = std::chrono::steady_clock::now();
  run(2, kHasty, [](Communicator& c) {
    Tensor x = c.make_exchanged({4}, DType::f32, own_gpu(c));
    c.all_reduce(x, ReduceOp::sum);
  });
  const auto time = std::chrono::steady_clock::now() - begin;
  CHECK(time >= std::chrono::milliseconds(900));
  CHECK(time < std::chrono::seconds(15));
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: a lost rank's group gives its memory back, while a GPU still waits for it too") {
  // With windows of an NCCL that ends what waits in them, and without where it does not: the simulated one says so.
  const char* const wanted = GENERATE("ordinary", "registered", "windows");
  const Asking asking(wanted, GENERATE(kWithout, kWithWindows));
  const auto begin = std::chrono::steady_clock::now();
  RankResults results(2);
  run(2, kHasty, testing::noting_errors(results, [](Communicator& c) {
        Tensor x = c.make_exchanged({4}, DType::f32, own_gpu(c));
        {
          step::StepGraph graph(own_gpu(c));
          const auto step = [&] {
            c.check_alive();
            graph.run({.input = {4}}, [&] { c.all_reduce(x, ReduceOp::sum, "bucket 4"); });
          };
          for (int i = 0; i < 3; ++i) step();
          // Rank 1 never launches the fourth.
          if (c.rank() == 0) step();
          x = Tensor();
          if (c.rank() == 1) throw CommError("had enough");
          runtime_for(own_gpu(c)).synchronize(current_stream(own_gpu(c)));
        }
      }));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
  CHECK(results.texts()[1] == "had enough");
  CHECK_FALSE(results.texts()[0].empty());
  CHECK(left_of_nccl().empty());
}
