// Replicas on several ranks against one rank with the whole batch: the same weights after every step, whatever the
// shares; which gradients travel together; and what happens when ranks do not have the same model.
#include "nccl_comm/data_parallel.h"

#include <limits>
#include <optional>

#include "engine/data/data_loader.h"
#include "engine/device/device_runtime.h"
#include "engine/nn/linear.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "models/model_list.h"
#include "nccl_comm/drift_monitor.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/devices.h"
#include "tests/support/instrumented.h"
#include "tests/support/planted_communicator.h"
#include "tests/support/relative_distance.h"

using namespace heddle;
using comm::Communicator;
using comm::DataParallel;
using heddle::test::contains;

namespace {

using testing::comm_errors;

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};

data::ResidentDataset make_images(std::int64_t count, Device device) {
  Philox random(3);
  std::vector<std::uint8_t> images(static_cast<std::size_t>(count * 28 * 28)), labels;
  for (std::uint8_t& pixel : images) pixel = static_cast<std::uint8_t>(random.below(256));
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(static_cast<std::uint8_t>(random.below(10)));
  return {images, labels, 28, 28, 1, 10, device};
}

// One rank's part of a training.
struct Replica {
  Replica(const std::string& name, const data::ResidentDataset& dataset, std::int64_t batch_size, Communicator& comm,
          std::uint64_t seed, const comm::DataParallelOptions& options = {})
      : model(models::make_model(name, {})),
        loader(dataset, {.batch_size = batch_size,
                         .seed = 7,
                         .random_flip = true,
                         .rank = comm.rank(),
                         .world_size = comm.world_size()}) {
    Philox random(seed);
    model->reset_parameters(random);
    model->to(dataset.images().device());
    buffer.emplace(*model);
    sgd.emplace(*buffer, 0.05, SgdParams{.momentum = 0.9});
    parallel.emplace(*model, *buffer, comm, options);
  }

  void step() {
    std::optional<data::Batch> batch = loader.next();
    if (!batch) {
      loader.start_epoch(++epoch);
      batch = loader.next();
    }
    sgd->zero_grad();
    if (batch->size() > 0) {
      const Variable loss = ops::cross_entropy(model->forward(batch->images), batch->labels,
                                               {.reduction = ops::Reduction::sum, .stats = buffer->tail()});
      backward(loss, parallel->hook());
    }
    parallel->finish();
    sgd->step({.divide_by_weight_sum = true});
  }

  std::shared_ptr<nn::Module> model;
  data::DataLoader loader;
  std::optional<nn::ParameterBuffer> buffer;
  std::optional<optim::Sgd> sgd;
  std::optional<DataParallel> parallel;
  std::int64_t epoch = 0;
};

struct Outcome {
  std::vector<float> weights, gradients;
};

// Weights and gradients with their tail, by rank, after some steps.
std::vector<Outcome> train(const std::string& name, Device device, int ranks, std::int64_t images,
                           std::int64_t batch_size, int steps, const comm::DataParallelOptions& options = {}) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  comm::run_rank_threads(ranks, kPatient, [&](Communicator& c) {
    const data::ResidentDataset dataset = make_images(images, device);
    // Seeds differ: what counts is rank 0's.
    Replica replica(name, dataset, batch_size, c, c.rank() == 0 ? 1 : 100 + static_cast<std::uint64_t>(c.rank()),
                    options);
    for (int i = 0; i < steps; ++i) replica.step();
    outcomes[static_cast<std::size_t>(c.rank())] = {replica.buffer->data().to_vector<float>(),
                                                    replica.buffer->gradients_with_tail().to_vector<float>()};
  });
  return outcomes;
}

}  // namespace

TEST_CASE("any number of ranks and any batch give the weights of one rank") {
  for (const Device device : testing::test_devices()) {
    for (const char* const name : {"lenet", "lenet-d2l"}) {
      // 97 images: ragged shares and a ragged last batch; 2 images: ranks with none.
      for (const auto& [images, batch_size] :
           {std::pair{97, 16}, std::pair{97, 97}, std::pair{2, 2}, std::pair{40, 7}}) {
        // The simulation of a GPU takes its time.
        if (!device.is_cpu() && (images != 97 || batch_size != 16)) continue;
        // More than an epoch. All of it takes too long under the thread sanitizer, which needs no repetition.
        const int steps = !device.is_cpu() ? 4 : test::kWatchesRaces ? 8 : 20;
        const Outcome one = train(name, device, 1, images, batch_size, steps)[0];
        for (const int ranks : {2, 3, 4, 8}) {
          if ((!device.is_cpu() || test::kWatchesRaces) && ranks != 3) continue;
          CAPTURE(device.to_string(), name, images, batch_size, ranks);
          const std::vector<Outcome> many = train(name, device, ranks, images, batch_size, steps);
          CHECK(testing::relative_distance(many[0].weights, one.weights) < 1e-5);
          CHECK(testing::relative_distance(many[0].gradients, one.gradients) < 1e-3);
          // The tail: weight sum, correct answers and samples are whole numbers.
          const std::size_t tail = one.gradients.size() - static_cast<std::size_t>(tail_slot::kCount);
          for (const std::int64_t slot : {tail_slot::kWeightSum, tail_slot::kSamples}) {
            CHECK(many[0].gradients[tail + static_cast<std::size_t>(slot)] ==
                  one.gradients[tail + static_cast<std::size_t>(slot)]);
          }
          for (const Outcome& rank : many) CHECK(rank.weights == many[0].weights);
        }
      }
    }
  }
}

TEST_CASE("many small buckets give the bits of one large one") {
  const comm::DataParallelOptions small{.buckets = {.bucket_nbytes = 1, .last_nbytes = 0}};
  const std::vector<Outcome> one = train("lenet", Device::cpu(), 3, 97, 16, 10);
  const std::vector<Outcome> many = train("lenet", Device::cpu(), 3, 97, 16, 10, small);
  for (std::size_t rank = 0; rank < one.size(); ++rank) CHECK(many[rank].weights == one[0].weights);
}

TEST_CASE("gradients in bf16 halve what is exchanged, stay close to those in f32, and replicas stay the same bits") {
  struct Traffic {
    std::size_t nbytes = 0, tail_nbytes = 0;
    int calls = 0;
  };
  const auto trained = [](Device device, const comm::DataParallelOptions& options, Traffic& traffic) {
    constexpr int kRanks = 3, kSteps = 4;
    std::vector<Outcome> outcomes(kRanks);
    comm::run_rank_threads(kRanks, kPatient, [&](Communicator& real) {
      testing::PlantedCommunicator counting(
          real, {.all_reduce = [&](Communicator& c, Tensor& x, comm::ReduceOp op, std::string_view what) {
            if (c.rank() == 0) {
              ++traffic.calls;
              traffic.nbytes += x.nbytes();
              if (!what.starts_with("gradients")) traffic.tail_nbytes += x.nbytes();
            }
            c.all_reduce(x, op, what);
          }});
      const data::ResidentDataset dataset = make_images(97, device);
      Replica replica("lenet", dataset, 16, counting, 1, options);
      if (real.rank() == 0) traffic = {};
      for (int i = 0; i < kSteps; ++i) replica.step();
      outcomes[static_cast<std::size_t>(real.rank())] = {replica.buffer->data().to_vector<float>(),
                                                         replica.buffer->gradients_with_tail().to_vector<float>()};
    });
    traffic.nbytes /= kSteps;
    traffic.tail_nbytes /= kSteps;
    traffic.calls /= kSteps;
    return outcomes;
  };
  for (const Device device : testing::test_devices()) {
    CAPTURE(device.to_string());
    Traffic wide, narrow, many;
    const std::vector<Outcome> f32 = trained(device, {}, wide);
    const std::vector<Outcome> bf16 = trained(device, {.reduce_dtype = DType::bf16}, narrow);
    constexpr auto kTail = static_cast<std::size_t>(tail_slot::kCount) * sizeof(float);
    CHECK(wide.calls == 1);
    CHECK(narrow.calls == 2);
    CHECK(narrow.tail_nbytes == kTail);
    CHECK((narrow.nbytes - kTail) * 2 == wide.nbytes - kTail);
    for (const Outcome& rank : bf16) {
      CHECK(rank.weights == bf16[0].weights);
      CHECK(rank.gradients == bf16[0].gradients);
    }
    const double weights = testing::relative_distance(bf16[0].weights, f32[0].weights);
    CHECK(weights > 0);
    CHECK(weights < 1e-3);
    const double gradients = testing::relative_distance(bf16[0].gradients, f32[0].gradients);
    CHECK(gradients > 1e-5);
    CHECK(gradients < 2e-2);
    // Counts are whole numbers, and the loss is no bf16.
    const std::size_t tail = f32[0].gradients.size() - static_cast<std::size_t>(tail_slot::kCount);
    const auto slot_of = [&](const Outcome& outcome, std::int64_t slot) {
      return outcome.gradients[tail + static_cast<std::size_t>(slot)];
    };
    for (const std::int64_t slot : {tail_slot::kWeightSum, tail_slot::kSamples}) {
      CHECK(slot_of(bf16[0], slot) == slot_of(f32[0], slot));
    }
    CHECK(slot_of(bf16[0], tail_slot::kLossSum) == Approx(slot_of(f32[0], tail_slot::kLossSum)).epsilon(1e-3));
    // Every element of the sums is one.
    for (std::size_t i = 0; i < tail; ++i) {
      if (static_cast<float>(bfloat16(bf16[0].gradients[i])) == bf16[0].gradients[i]) continue;
      FAIL("element " << i << " of the sums is " << bf16[0].gradients[i]);
    }
    const comm::DataParallelOptions small{.buckets = {.bucket_nbytes = 1, .last_nbytes = 0},
                                          .reduce_dtype = DType::bf16};
    CHECK(trained(device, small, many)[1].weights == bf16[0].weights);
    CHECK(many.calls > 5);
    CHECK(many.nbytes == narrow.nbytes);
  }
}

TEST_CASE("gradients are exchanged in no other dtype") {
  const auto errors = comm_errors(1, kPatient, [](Communicator& c) {
    nn::Linear layer(3, 2);
    nn::ParameterBuffer buffer(layer);
    try {
      const DataParallel parallel(layer, buffer, c, {.reduce_dtype = DType::f64});
    } catch (const InvalidArgument& error) {
      throw CommError(error.what());
    }
  });
  CHECK(contains(errors[0], "exchanged in f32 or bf16, not in f64"));
}

TEST_CASE("buckets cover the buffer from its end, and the last one is small") {
  const auto model = models::make_model("lenet", {});
  nn::ParameterBuffer buffer(*model);
  const auto plan = [&](std::size_t bucket_nbytes, std::size_t last_nbytes) {
    const auto buckets =
        comm::plan_buckets(buffer.segments(), {.bucket_nbytes = bucket_nbytes, .last_nbytes = last_nbytes});
    CHECK(buckets.front().end == buffer.gradients().numel() + tail_slot::kCount);
    CHECK(buckets.front().last == buffer.segments().size());
    CHECK(buckets.back().begin == 0);
    CHECK(buckets.back().first == 0);
    for (std::size_t i = 1; i < buckets.size(); ++i) {
      CHECK(buckets[i].end == buckets[i - 1].begin);
      CHECK(buckets[i].last == buckets[i - 1].first);
      CHECK(buckets[i].first < buckets[i].last);
    }
    return buckets;
  };
  // LeNet's 44,426 parameters are one call of at most 180 kB.
  const auto whole = plan(std::size_t{12} << 20, std::size_t{3} << 20);
  REQUIRE(whole.size() == 1);
  CHECK((whole[0].end - whole[0].begin) * 4 <= 180'000);
  CHECK(plan(1, 0).size() == buffer.segments().size());
  // The convolutions (10.3 kB) last, the layers of the head (41 kB, 123 kB) by themselves.
  const auto parts = plan(40'000, 11'000);
  REQUIRE(parts.size() == 3);
  CHECK((parts[2].end - parts[2].begin) * 4 <= 11'000);
  CHECK(buffer.segments()[parts[1].first].numel == 256 * 120);
}

TEST_CASE("a parameter that only some ranks use counts as zero on the others") {
  std::vector<std::vector<float>> gradients(2);
  comm::run_rank_threads(2, kPatient, [&](Communicator& c) {
    struct Both : nn::Module {
      Both() {
        a = register_parameter("a", {2});
        b = register_parameter("b", {4});
        never = register_parameter("never", {1});
      }
      std::string description() const override { return "Both"; }
      Variable a, b, never;
    } both;
    for (Variable* v : {&both.a, &both.b, &both.never}) v->mutable_data().fill_zero();
    nn::ParameterBuffer buffer(both);
    DataParallel parallel(both, buffer, c, {.buckets = {.bucket_nbytes = 1, .last_nbytes = 0}});
    for (int round = 0; round < 2; ++round) {
      buffer.zero_grad();
      Variable loss = ops::sum(ops::mul(both.a, Tensor::full({2}, 3)));
      if (c.rank() == 1) loss = ops::add(loss, ops::sum(ops::mul(both.b, Tensor::full({4}, 5))));
      backward(loss, parallel.hook());
      parallel.finish();
      gradients[static_cast<std::size_t>(c.rank())] = buffer.gradients().to_vector<float>();
    }
  });
  CHECK(gradients[0] == std::vector<float>{6, 6, 0, 0, 5, 5, 5, 5, 0, 0, 0, 0});
  CHECK(gradients[1] == gradients[0]);
}

TEST_CASE("ranks that begin with other weights and buffers are the same before the first step, and after each") {
  testing::RankResults results(3);
  comm::run_rank_threads(3, kPatient, [&](Communicator& c) {
    const data::ResidentDataset dataset = make_images(30, Device::cpu());
    Replica replica("lenet", dataset, 16, c, 100 + static_cast<std::uint64_t>(c.rank()));
    results.add(c.rank(), comm::compare_replicas(c, comm::replica_state(*replica.sgd)));
    for (int i = 0; i < 4; ++i) {
      replica.step();
      results.add(c.rank(), comm::compare_replicas(c, comm::replica_state(*replica.sgd)));
    }
    struct WithBuffer : nn::Module {
      explicit WithBuffer(int rank) {
        register_parameter("w", {2}).mutable_data().fill_zero();
        state = register_buffer("running", Tensor::full({3}, rank + 1));
      }
      std::string description() const override { return "WithBuffer"; }
      Variable state;
    } module(c.rank());
    nn::ParameterBuffer buffer(module);
    const DataParallel parallel(module, buffer, c);
    if (module.state.data().to_vector<float>() != std::vector<float>{1, 1, 1}) results.add(c.rank(), "buffer differs");
    results.add(c.rank(), comm::compare_replicas(c, comm::replica_buffers(module)));
  });
  for (const std::string& text : results.texts()) CHECK(text.empty());
}

TEST_CASE("a NaN on one rank is seen by all in the same step") {
  std::vector<std::vector<bool>> skipped(3);
  comm::run_rank_threads(3, kPatient, [&](Communicator& c) {
    const data::ResidentDataset dataset = make_images(30, Device::cpu());
    Replica replica("lenet", dataset, 30, c, 1);
    for (int i = 0; i < 3; ++i) {
      if (i == 1 && c.rank() == 2) {
        replica.buffer->data().mutable_host_data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
      }
      replica.step();
      skipped[static_cast<std::size_t>(c.rank())].push_back(replica.sgd->last_step_skipped());
    }
  });
  for (const auto& of_rank : skipped) CHECK(of_rank == std::vector<bool>{false, true, true});
}

TEST_CASE("ranks with different models are told the first difference before the first step") {
  const auto errors_of = [](const std::function<std::shared_ptr<nn::Module>(int)>& make) {
    return comm_errors(3, kPatient, [&](Communicator& c) {
      const auto model = make(c.rank());
      nn::ParameterBuffer buffer(*model);
      const DataParallel parallel(*model, buffer, c);
    });
  };
  for (const std::string& error :
       errors_of([](int rank) { return std::make_shared<nn::Linear>(4, rank == 2 ? 11 : 10); })) {
    CHECK(contains(error, "rank 0 has parameter 'weight' f32 (10,4)"));
    CHECK(contains(error, "rank 2 has parameter 'weight' f32 (11,4)"));
  }
  const auto frozen = errors_of([](int rank) {
    auto layer = std::make_shared<nn::Linear>(4, 10);
    if (rank == 1) layer->named_parameters()[1].variable.set_requires_grad(false);
    return layer;
  });
  for (const std::string& error : frozen) CHECK(contains(error, "rank 1 has parameter 'bias' f32 (10), frozen"));
  for (const std::string& error :
       errors_of([](int rank) { return models::make_model(rank == 1 ? "lenet-d2l" : "lenet", {}); })) {
    CHECK(contains(error, "rank 1"));
  }
}

TEST_CASE("a second backward pass with the hook before finish() is refused") {
  comm::run_rank_threads(1, kPatient, [](Communicator& c) {
    auto layer = std::make_shared<nn::Linear>(3, 2);
    Philox random(1);
    layer->reset_parameters(random);
    nn::ParameterBuffer buffer(*layer);
    DataParallel parallel(*layer, buffer, c);
    buffer.zero_grad();
    const auto pass = [&](const LeafReadyHook& hook) {
      backward(ops::sum(layer->forward(Tensor::full({1, 3}, 1))), hook);
    };
    pass({});
    pass(parallel.hook());
    try {
      pass(parallel.hook());
      throw Error("nothing was thrown");
    } catch (const InvalidArgument&) {
    }
    parallel.finish();
    pass(parallel.hook());
    parallel.finish();
  });
  SUCCEED();
}
