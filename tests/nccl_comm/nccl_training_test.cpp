// Trainings whose ranks have a GPU each, on the simulated NCCL: the weights of one rank, the plan of a step, and what
// happens when a rank is lost in the middle.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "engine/nn/activation.h"
#include "engine/nn/batch_norm.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/flatten.h"
#include "engine/nn/linear.h"
#include "engine/nn/sequential.h"
#include "engine/optim/sgd.h"
#include "engine/step/step_graph.h"
#include "nccl_comm/nccl_communicator.h"
#include "tests/cudasim/cudasim.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/device_training.h"
#include "tests/support/relative_distance.h"

namespace heddle::test {
namespace {

using comm::Communicator;

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};
// The simulation of a GPU takes its time.
constexpr comm::CommunicatorOptions kHasty{.timeout = std::chrono::seconds(6)};

void run(int ranks, const comm::CommunicatorOptions& options, const std::function<void(Communicator&)>& body) {
  std::vector<Device> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(Device::cuda(rank));
  comm::run_rank_threads(comm::make_nccl_group(devices, options), body);
}

tools::Settings settings_for(const std::string& model, std::int64_t batch_size) {
  tools::Settings settings;
  settings.model = model;
  settings.batch_size = batch_size;
  settings.momentum = 0.9;
  settings.lr = 0.05;
  settings.augment = "flip";
  settings.steps_per_launch = 1;
  return settings;
}

void train_steps(Training& training, int steps) {
  training.trainer.start_epoch();
  for (int done = 0; done < steps; ++done) {
    if (training.trainer.advance()) continue;
    training.trainer.finish_epoch();
    training.trainer.start_epoch();
    --done;
  }
}

std::vector<float> weights_alone(const tools::Settings& settings, const datasets::ImageDatasetPair& data, int steps) {
  Training training(settings, data, Device::cpu());
  train_steps(training, steps);
  return training.weights();
}

// By rank.
std::vector<std::vector<float>> weights_of(int ranks, const tools::Settings& settings,
                                           const datasets::ImageDatasetPair& data, int steps,
                                           const comm::ModelFactory& make = {}) {
  std::vector<std::vector<float>> weights(static_cast<std::size_t>(ranks));
  run(ranks, kPatient, [&](Communicator& c) {
    Training training(settings, data, Device::cuda(c.rank()), &c, make);
    train_steps(training, steps);
    weights[static_cast<std::size_t>(c.rank())] = training.weights();
  });
  return weights;
}

// What two ranks do in some steps, after the first two of their kind.
constexpr int kRanks = 2, kSteps = 6;
struct Counted {
  cudasim::Counters used;
  std::vector<cudasim::OpRecord> trace;
  std::size_t gradient_nbytes = 0;
};
// Counted by rank 0 while the other one stands still.
Counted count_steps(const tools::Settings& settings, const datasets::ImageDatasetPair& data,
                    const comm::ModelFactory& make = {}) {
  Counted counted;
  run(kRanks, kPatient, [&](Communicator& c) {
    Training training(settings, data, Device::cuda(c.rank()), &c, make);
    training.trainer.start_epoch();
    for (int i = 0; i < 2; ++i) training.trainer.advance();
    training.trainer.finish_steps();
    c.barrier();
    if (c.rank() == 0) {
      counted.gradient_nbytes = training.trainer.optimizer().parameters().gradients_with_tail().nbytes();
      cudasim::reset_counters();
      cudasim::set_tracing(true);
    }
    c.barrier();
    for (int i = 0; i < kSteps; ++i) training.trainer.advance();
    training.trainer.finish_steps();
    c.barrier();
    if (c.rank() == 0) {
      counted.used = cudasim::counters();
      counted.trace = cudasim::trace();
      cudasim::set_tracing(false);
    }
    c.barrier();
  });
  return counted;
}
// One graph launch a step and rank, and nothing beside it.
void check_recorded(const cudasim::Counters& used) {
  CHECK(used.graph_launches == kRanks * kSteps);
  CHECK(used.host_waits == 0);
  CHECK(used.allocations + used.frees == 0);
  CHECK(used.copies_host_to_device + used.copies_device_to_host + used.copies_device_to_device == 0);
  CHECK(used.fills == 0);
  CHECK(used.host_functions == 0);
}

std::shared_ptr<nn::Module> two_batch_norms() {
  // A bias under a batch norm has the gradient 0, which a kernel of its own writes before it is exchanged.
  const nn::Conv2dOptions conv{.kernel_size = 3, .stride = 2, .padding = 1, .bias = false};
  return std::make_shared<nn::Sequential>(
      std::vector<std::shared_ptr<nn::Module>>{
          std::make_shared<nn::Conv2d>(1, 8, conv), std::make_shared<nn::BatchNorm2d>(8), std::make_shared<nn::ReLU>(),
          std::make_shared<nn::Conv2d>(8, 6, conv), std::make_shared<nn::BatchNorm2d>(6), std::make_shared<nn::ReLU>(),
          std::make_shared<nn::Flatten>(), std::make_shared<nn::Linear>(7 * 7 * 6, 10)},
      1);
}

}  // namespace

TEST_CASE("ranks with a GPU each train the weights of one rank, ragged and with ranks that have no image") {
  struct Run {
    const char* model;
    std::int64_t images, batch_size;
    std::vector<int> ranks;
    int steps;
  };
  for (const Run& what : {Run{"lenet", 97, 16, {2, 4, 8}, 20}, Run{"lenet", 2, 2, {2, 4, 8}, 20},
                          Run{"lenet-d2l", 97, 16, {2, 4, 8}, 20}, Run{"lenet-d2l", 2, 2, {2, 4, 8}, 20}}) {
    const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = what.images, .n_test = 2});
    const tools::Settings settings = settings_for(what.model, what.batch_size);
    const std::vector<float> one = weights_alone(settings, data, what.steps);
    for (const int ranks : what.ranks) {
      CAPTURE(what.model, what.images, ranks);
      const std::vector<std::vector<float>> many = weights_of(ranks, settings, data, what.steps);
      CHECK(testing::relative_distance(many[0], one) < 1e-5);
      for (const std::vector<float>& weights : many) CHECK(weights == many[0]);
    }
  }
}

TEST_CASE(
    "a step of ranks with a GPU each is one graph a rank, with one all-reduce and no other work than one rank's") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 400, .n_test = 16});
  const Counted counted = count_steps(settings_for("lenet", 32), data);
  check_recorded(counted.used);
  CHECK(counted.used.collectives == kRanks * kSteps);
  CHECK(counted.used.kernels + counted.used.library_calls <= 23 * kRanks * kSteps);
  std::int64_t bytes = 0, calls = 0;
  for (const cudasim::OpRecord& op : counted.trace) {
    CHECK(op.in_graph);
    if (op.kind != cudasim::OpKind::collective) continue;
    ++calls;
    bytes = std::max(bytes, op.bytes_read);
  }
  CHECK(calls == kRanks * kSteps);
  CHECK(static_cast<double>(bytes) <= 1.01 * static_cast<double>(counted.gradient_nbytes));
  CHECK(bytes <= 180'000);
}

TEST_CASE("a step with synchronised batch norms is one graph too: an exchange for each of them and direction on top") {
  constexpr std::int64_t kNorms = 2, kDirections = 2;
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 400, .n_test = 16});
  tools::Settings settings = settings_for("two batch norms", 32);
  const Counted plain = count_steps(settings, data, two_batch_norms);
  settings.sync_bn = true;
  const Counted synchronised = count_steps(settings, data, two_batch_norms);
  for (const Counted* counted : {&plain, &synchronised}) check_recorded(counted->used);
  CHECK(plain.used.collectives == kRanks * kSteps);
  CHECK(synchronised.used.collectives == (1 + kNorms * kDirections) * kRanks * kSteps);
  const auto kernels = [](const Counted& counted) { return counted.used.kernels + counted.used.library_calls; };
  CHECK(kernels(synchronised) <= kernels(plain) + 2 * kNorms * kDirections * kRanks * kSteps);
  for (const cudasim::OpRecord& op : synchronised.trace) CHECK(op.in_graph);
}

TEST_CASE("synchronised batch norms train the same bits recorded and called, and what one rank trains") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 35, .n_test = 2});
  tools::Settings settings = settings_for("two batch norms", 8);
  Training alone(settings, data, Device::cuda(0), nullptr, two_batch_norms);
  train_steps(alone, 8);
  settings.sync_bn = true;
  for (const int ranks : {2, 3}) {
    std::vector<std::vector<float>> weights;
    for (const bool graph : {false, true}) {
      settings.graph = graph;
      CAPTURE(ranks, graph);
      for (const std::vector<float>& of_rank : weights_of(ranks, settings, data, 8, two_batch_norms)) {
        weights.push_back(of_rank);
        CHECK(testing::relative_distance(of_rank, alone.weights()) < 1e-5);
      }
    }
    for (const std::vector<float>& each : weights) CHECK(each == weights[0]);
  }
}

TEST_CASE(
    "a bucket is posted before the next layer's gradients, also in a recorded step, and nothing touches it then") {
  std::vector<cudasim::OpRecord> trace;
  run(kRanks, kPatient, [&](Communicator& c) {
    const Device device = Device::cuda(c.rank());
    struct Layers : nn::Module {
      Layers() {
        for (int i = 0; i < 3; ++i) {
          layers.push_back(register_module(join_text("layer", i), std::make_shared<nn::Linear>(8, 8)));
        }
      }
      using nn::Module::forward;
      Variable forward(const Variable& x) override {
        Variable h = x;
        for (const auto& layer : layers) h = ops::relu(layer->forward(h));
        return h;
      }
      std::string description() const override { return "Layers"; }
      std::vector<std::shared_ptr<nn::Linear>> layers;
    } model;
    Philox random(1);
    model.reset_parameters(random);
    model.to(device);
    nn::ParameterBuffer buffer(model);
    // A bucket for each layer: 8 x 8 weights and 8 of bias.
    comm::DataParallel parallel(model, buffer, c, {.buckets = {.bucket_nbytes = 72 * 4, .last_nbytes = 72 * 4}});
    if (parallel.buckets().size() != 3) throw Error(join_text(parallel.buckets().size(), " buckets"));
    const Tensor x = Tensor::full({4, 8}, 1, DType::f32, device);
    step::StepGraph graph(device);
    for (int i = 0; i < 3; ++i) {
      if (i == 2) {
        runtime_for(device).synchronize(current_stream(device));
        c.barrier();
        if (c.rank() == 0) cudasim::set_tracing(true);
        c.barrier();
      }
      graph.run({.input = {4}}, [&] {
        buffer.zero_grad();
        backward(ops::sum(model.forward(x)), parallel.hook());
        parallel.finish();
      });
    }
    runtime_for(device).synchronize(current_stream(device));
    c.barrier();
    if (c.rank() == 0) {
      trace = cudasim::trace();
      cudasim::set_tracing(false);
    }
    c.barrier();
  });
  // Of rank 0: the order in which a graph's work was recorded.
  std::string order;
  std::int64_t stream_of_calls = -1;
  for (const cudasim::OpRecord& op : trace) {
    if (op.device != 0) continue;
    if (op.kind == cudasim::OpKind::collective) {
      order += "R";
      stream_of_calls = op.stream;
      CHECK(op.bytes_read <= (72 + tail_slot::kCount) * 4);
    } else {
      order += op.stream == stream_of_calls ? "!" : "k";
    }
  }
  INFO(order);
  // Work of the next layer between two calls, none of it on the stream of the calls, and none behind the last.
  REQUIRE(std::count(order.begin(), order.end(), 'R') == 3);
  CHECK(order.find("RR") == std::string::npos);
  CHECK(order.find('!') == std::string::npos);
  CHECK(order.back() == 'R');
}

TEST_CASE("what two streams do in a step of NCCL is ordered, called and recorded") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 32, .n_test = 2});
  for (const bool graph : {false, true}) {
    tools::Settings settings = settings_for("lenet", 8);
    settings.graph = graph;
    const std::vector<float> one = weights_alone(settings, data, 4);
    CAPTURE(graph);
    for (const std::vector<float>& weights : weights_of(kRanks, settings, data, 4)) {
      CHECK(testing::relative_distance(weights, one) < 1e-5);
    }
  }
}

TEST_CASE("reproducible trainings with NCCL have the bits of one rank") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 40, .n_test = 2});
  tools::Settings settings = settings_for("lenet", 16);
  settings.reproducible = true;
  std::vector<float> one;
  {
    Training training(settings, data, Device::cuda(0));
    train_steps(training, 5);
    one = training.weights();
  }
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    for (const std::vector<float>& weights : weights_of(ranks, settings, data, 5)) CHECK((weights == one));
  }
}

TEST_CASE("a rank that is lost while the others queue steps is named in time, on every one of them") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 400, .n_test = 2});
  const tools::Settings settings = settings_for("lenet", 8);
  const auto begin = std::chrono::steady_clock::now();
  testing::RankResults results(3);
  std::atomic<int> told{0};
  run(3, kHasty, testing::noting_errors(results, [&](Communicator& c) {
        Training training(settings, data, Device::cuda(c.rank()), &c);
        training.trainer.start_epoch();
        for (int i = 0; i < 30; ++i) {
          while (c.rank() == 2 && i == 5 && told < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          try {
            training.trainer.advance();
          } catch (const CommError&) {
            ++told;
            throw;
          }
        }
      }));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
  for (const std::string& text : results.texts()) {
    contains(text, "the last call in it all_reduce of");
    contains(text, "gradients, bucket 1 of 1");
    contains(text, "rank 2 of 3 did not come");
  }
}

TEST_CASE("a loss that is not finite ends all ranks in the same step, though their hosts do not meet") {
  const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 800, .n_test = 2});
  tools::Settings settings = settings_for("lenet", 8);
  settings.lr = 1e30;
  std::vector<std::string> told(2);
  run(2, kPatient, [&](Communicator& c) {
    Training training(settings, data, Device::cuda(c.rank()), &c);
    training.trainer.start_epoch();
    try {
      while (training.trainer.advance()) {
        // One host reads late what the other has read.
        if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    } catch (const tools::NonFiniteLoss& error) {
      told[static_cast<std::size_t>(c.rank())] = error.what();
    }
    training.trainer.optimizer().parameters().data().to_vector<float>();
    c.barrier();
  });
  contains(told[0], "NaN or infinite at step");
  CHECK(told[1] == told[0]);
}

}  // namespace heddle::test
