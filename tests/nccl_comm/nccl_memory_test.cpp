// Memory that NCCL exchanges gradients from: that it is used, changes no bit, is refused cleanly, and is given back in
// order. On the simulated NCCL, which ends the process where a real one would touch memory that is gone.
#include <nccl.h>

#include <algorithm>
#include <chrono>

#include "engine/nn/init.h"
#include "engine/optim/sgd.h"
#include "engine/step/step_graph.h"
#include "nccl_comm/data_parallel.h"
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
    const Trained in_windows = train(dtype);
    CHECK(in_windows.memory == "a window of NCCL's memory");
    // All calls on gradients: what is outside are hashes, weights at the start and, beside bf16, the tail.
    const std::int64_t buckets = kRanks * kSteps * 2;
    CHECK(in_windows.counters.collectives_in_windows >= buckets);
    cudasim::fail_nth_library_call("ncclMemAlloc", 1, ncclUnhandledCudaError);
    const Trained ordinary = train(dtype);
    cudasim::clear_failures();
    CHECK(ordinary.counters.collectives_in_windows == 0);
    CHECK(ordinary.counters.collectives == in_windows.counters.collectives);
    CHECK(ordinary.weights == in_windows.weights);
    CHECK(left_of_nccl().empty());
  }
}

TEST_CASE("NCCL: where one rank is refused memory all do without, and say why") {
  cudasim::fail_nth_library_call("ncclMemAlloc", 2, ncclSystemError);
  const std::string text = memory_of_a_tensor(3);
  cudasim::clear_failures();
  contains(text, "ordinary memory: NCCL: ncclMemAlloc failed with ncclSystemError");
  contains(text, "ordinary memory: 1 of 3 ranks, not this one, got no other");
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: an older library has registered buffers, or only ordinary memory") {
  CHECK(memory_of_a_tensor(2) == "a window of NCCL's memory");
  CHECK(comm::nccl_memory() == "windows");
  cudasim::set_nccl_version(22602);
  CHECK(memory_of_a_tensor(2) == "registered memory of NCCL");
  contains(comm::nccl_memory(), "windows need NCCL 2.27.0");
  cudasim::set_nccl_version(21805);
  CHECK(memory_of_a_tensor(2) == "ordinary memory: NCCL 2.18.5 has no memory of its own, 2.19.0 has");
  contains(comm::nccl_memory(), "ordinary memory: NCCL 2.18.5");
  cudasim::set_nccl_version(0);
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: a window that all ranks are refused becomes a buffer, and a buffer that is refused is memory still") {
  for (int i = 0; i < 2; ++i) cudasim::fail_nth_library_call("ncclCommWindowRegister", 1, ncclInvalidUsage);
  contains(memory_of_a_tensor(2), "registered memory of NCCL, without a window: NCCL: ncclCommWindowRegister failed");
  cudasim::clear_failures();
  cudasim::set_nccl_version(22602);
  for (int i = 0; i < 2; ++i) cudasim::fail_nth_library_call("ncclCommRegister", 1, ncclInvalidUsage);
  contains(memory_of_a_tensor(2), "NCCL's memory, not registered: NCCL: ncclCommRegister failed");
  cudasim::clear_failures();
  cudasim::set_nccl_version(0);
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: a window that only some ranks are refused, and different sizes, end the group with the reason") {
  cudasim::fail_nth_library_call("ncclCommWindowRegister", 2, ncclInvalidUsage);
  const auto texts_of = [](const std::function<void(Communicator&)>& body) {
    RankResults results(2);
    run(2, kPatient, testing::noting_errors(results, body));
    return results.texts();
  };
  for (const std::string& text : texts_of([](Communicator& c) { c.make_exchanged({8}, DType::f32, own_gpu(c)); })) {
    contains(text, "NCCL refused 1 of 2 ranks a window of memory for exchanges");
    contains(text, "NCCL_WIN_ENABLE=0");
  }
  cudasim::clear_failures();
  for (const std::string& text :
       texts_of([](Communicator& c) { c.make_exchanged({8 + c.rank()}, DType::f32, own_gpu(c)); })) {
    contains(text, "the ranks ask for different memory for exchanges");
    contains(text, "others for 32 to 36");
  }
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: memory outlives its communicator with a tensor, and is given back by the next call without one") {
  std::vector<Tensor> kept(2);
  std::vector<std::size_t> most(2);
  run(2, kPatient, [&](Communicator& c) {
    const auto index = static_cast<std::size_t>(c.rank());
    kept[index] = c.make_exchanged({1000}, DType::f32, own_gpu(c));
    for (int i = 0; i < 5; ++i) {
      c.make_exchanged({1000}, DType::f32, own_gpu(c));
      c.barrier();
      const std::vector<std::string> kinds = left_of_nccl();
      most[index] = std::max<std::size_t>(
          most[index], static_cast<std::size_t>(std::count(kinds.begin(), kinds.end(), "NCCL memory")));
      c.barrier();
    }
  });
  // One that is kept and one that the next call frees, on two ranks.
  for (const std::size_t count : most) CHECK(count == 4);
  CHECK(left_of_nccl() == std::vector<std::string>{"NCCL memory", "NCCL memory"});
  for (Tensor& tensor : kept) {
    CHECK(tensor.to_vector<float>() == std::vector<float>(1000, 0.0f));
    tensor = Tensor();
  }
  CHECK(left_of_nccl().empty());
}

TEST_CASE("NCCL: a lost rank's group gives its memory back, while a GPU still waits for it too") {
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
