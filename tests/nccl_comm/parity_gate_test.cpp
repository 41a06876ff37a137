// The parity gate passes what is right, on any number of ranks and any batch, and leaves everything as it was; and it
// stops what is wrong: each fault is planted into a training that runs through without the gate.
#include "nccl_comm/parity_gate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "engine/autograd/backward.h"
#include "engine/nn/random_streams.h"
#include "engine/ops/ops.h"
#include "engine/optim/adam.h"
#include "engine/optim/sgd.h"
#include "nccl_comm/data_parallel.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/nccl_comm/small_model.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/devices.h"
#include "tests/support/planted_communicator.h"

using namespace heddle;
using comm::Communicator;
using comm::ReduceOp;
using heddle::test::contains;

namespace {

using testing::comm_errors;
using testing::PlantedCalls;

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};
constexpr std::int64_t kPixels = 16, kClasses = 10;

// With a buffer that training does not use.
struct SmallModel : testing::SmallModelWithBuffer {
  SmallModel() : SmallModelWithBuffer({.pixels = kPixels, .hidden = 8, .classes = kClasses}, 0.25) {}
};

data::ResidentDataset make_images(std::int64_t count, Device device) {
  Philox random(3);
  std::vector<std::uint8_t> images(static_cast<std::size_t>(count * kPixels)), labels;
  for (std::uint8_t& pixel : images) pixel = static_cast<std::uint8_t>(random.below(256));
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(static_cast<std::uint8_t>(random.below(kClasses)));
  return {images, labels, 4, 4, 1, kClasses, device};
}

struct Run {
  std::int64_t images, batch_size;
};

// What is wrong with a training; nothing by default.
struct Fault {
  std::string name;
  std::string found;  // what the gate's message holds
  // Makes the planted calls of one rank.
  std::function<PlantedCalls()> calls = [] { return PlantedCalls{}; };
  bool first_share_twice = false;
  bool same_dropout = false;
  bool keeps_gradients = false;  // no zero_grad()
  bool sends_early = false;      // the exchange begins before the second half of a share was computed
  bool divides = true;           // the update, by the weight sum
  bool other_momentum = false;   // on rank 1
  DType reduce_dtype = DType::f32;
};

data::DataLoaderOptions loader_options(std::int64_t batch_size, int rank, int world_size) {
  return {.batch_size = batch_size, .seed = 7, .random_flip = true, .rank = rank, .world_size = world_size};
}

// One rank's part of a training, every parameter in a bucket of its own.
struct Training {
  Training(const data::ResidentDataset& dataset, std::int64_t batch_size, Communicator& real, const Fault& wrong,
           bool adam = false)
      : fault(wrong),
        communicator(real, wrong.calls()),
        loader(dataset, loader_options(batch_size, wrong.first_share_twice ? 0 : real.rank(), real.world_size())),
        whole(dataset, loader_options(batch_size, 0, 1)) {
    // Seeds differ: what counts is rank 0's.
    Philox random(1 + static_cast<std::uint64_t>(real.rank()));
    model.reset_parameters(random);
    model.average.mutable_data() = Tensor::full({3}, real.rank());
    model.to(dataset.images().device());
    // Layers draw from the same seed, of which each rank has its own part.
    for (const auto& [name, stream] : model.named_random_streams()) stream->seed = 5;
    buffer.emplace(model);
    if (adam) {
      optimizer = std::make_unique<optim::Adam>(*buffer, 0.01);
    } else {
      optimizer = std::make_unique<optim::Sgd>(*buffer, 0.05, SgdParams{.momentum = 0.9});
    }
    random_streams.emplace(model, optimizer->state().address_of(step_slot::kRandom),
                           wrong.same_dropout ? 0 : real.rank());
    parallel.emplace(model, *buffer, communicator,
                     comm::DataParallelOptions{.buckets = {.bucket_nbytes = 1, .last_nbytes = 0},
                                               .reduce_dtype = wrong.reduce_dtype});
    if (wrong.other_momentum && real.rank() == 1)
      optimizer->state_tensors()[0].second.narrow(9, 1).copy_from(Tensor::full({1}, 0.5).to(dataset.images().device()));
  }

  Variable loss(const data::Batch& batch) {
    return ops::cross_entropy(model.forward(batch.images), batch.labels,
                              {.reduction = ops::Reduction::sum, .stats = buffer->tail()});
  }

  void sum_gradients(std::int64_t images) {
    random_streams->begin_step();
    if (!fault.keeps_gradients || !began) optimizer->zero_grad();
    began = true;
    const data::Batch batch = loader.load(images);
    if (fault.sends_early && batch.size() > 1) {
      const std::int64_t half = batch.size() / 2;
      backward(loss({batch.images.narrow(0, half), batch.labels.narrow(0, half)}), parallel->hook());
      backward(loss({batch.images.narrow(half, batch.size() - half), batch.labels.narrow(half, batch.size() - half)}));
    } else {
      const std::int64_t n = std::min(pieces, batch.size());
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t begin = batch.size() * i / n, end = batch.size() * (i + 1) / n;
        const Variable sum = loss({batch.images.narrow(begin, end - begin), batch.labels.narrow(begin, end - begin)});
        backward(sum, i == n - 1 ? parallel->hook() : LeafReadyHook());
      }
    }
    parallel->finish();
  }

  void update() { optimizer->step({.divide_by_weight_sum = fault.divides}); }

  comm::ParityResult check(const std::vector<std::int64_t>& batches) {
    return comm::check_parity({.model = model,
                               .optimizer = *optimizer,
                               .sum_gradients =
                                   [this](std::int64_t images) {
                                     loader.rewind();
                                     sum_gradients(images);
                                   },
                               .update = [this] { update(); },
                               .load_whole =
                                   [this](std::int64_t images) {
                                     whole.rewind();
                                     return whole.load(images);
                                   },
                               .loss = [this](const data::Batch& batch) { return loss(batch); },
                               .pieces = pieces},
                              communicator, batches, {.reduce_dtype = fault.reduce_dtype});
  }

  void train(int steps) {
    loader.start_epoch(0);
    for (int i = 0; i < steps; ++i) {
      const std::int64_t images = loader.next_size();
      if (images == 0) return;
      sum_gradients(images);
      update();
      loader.advance(images);
    }
  }

  // Everything that a step changes.
  std::vector<std::vector<float>> state() {
    std::vector<std::vector<float>> all{buffer->data().to_vector<float>(), model.average.data().to_vector<float>()};
    for (const auto& [name, tensor] : optimizer->state_tensors()) all.push_back(tensor.to_vector<float>());
    std::vector<std::int64_t> counters = optimizer->state().counters().to_vector<std::int64_t>();
    counters[step_slot::kSequence] = 0;
    all.emplace_back(counters.begin(), counters.end());
    all.push_back({static_cast<float>(model.named_random_streams()[0].second->offset)});
    return all;
  }

  Fault fault;
  bool began = false;
  std::int64_t pieces = 1;
  SmallModel model;
  testing::PlantedCommunicator communicator;
  data::DataLoader loader, whole;
  std::optional<nn::ParameterBuffer> buffer;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<nn::RandomStreams> random_streams;
  std::optional<comm::DataParallel> parallel;
};

bool is_bucket(std::string_view what, int number) {
  return what.starts_with(join_text("gradients, bucket ", number, " of"));
}

// A fault in the sums of gradients: wrong(real, x, number of the bucket) replaces the exchange.
std::function<PlantedCalls()> in_sums(std::function<void(Communicator&, Tensor&, int)> wrong) {
  return [wrong] {
    return PlantedCalls{.all_reduce = [wrong](Communicator& real, Tensor& x, ReduceOp op, std::string_view what) {
      for (int number = 1; number <= 4; ++number) {
        if (is_bucket(what, number)) return wrong(real, x, number);
      }
      real.all_reduce(x, op, what);
    }};
  };
}

// Rank 1 does not take over what rank 0 sends.
std::function<PlantedCalls()> without_broadcast(const std::string& of) {
  return [of] {
    return PlantedCalls{.broadcast = [of](Communicator& real, Tensor& x, int root, std::string_view what) {
      Tensor received = x.clone();
      real.broadcast(received, root, what);
      if (what != of || real.rank() != 1) x.copy_from(received);
    }};
  };
}

// Elements of a bucket that are gradients; the first bucket ends with the tail.
std::int64_t gradients_of(const Tensor& x, int number) { return x.numel() - (number == 1 ? tail_slot::kCount : 0); }

void sum(Communicator& real, Tensor& x) { real.all_reduce(x, ReduceOp::sum, "gradients"); }

// The parameters' buckets: 1 out.bias and the tail, 2 out.weight, 3 hidden.bias, 4 hidden.weight.
std::vector<Fault> faults() {
  std::vector<Fault> all;
  all.push_back({.name = "sums divided by the number of ranks, and by the weight sum again",
                 .found = "the gradient of 'hidden.weight'",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   sum(real, x);
                   float* const values = x.mutable_host_data<float>();
                   for (std::int64_t i = 0; i < gradients_of(x, number); ++i) values[i] *= 0.5f;
                 })});
  all.push_back({.name = "an update that does not divide", .found = "the update of '", .divides = false});
  all.push_back({.name = "a dropped bucket",
                 .found = "the gradient of 'out.weight'",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   if (number != 2) sum(real, x);
                 })});
  all.push_back({.name = "a bucket whose sum one rank does not take over",
                 .found = "weights of 'out.weight': rank 1 of 2 differs from rank 0 after the step",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   Tensor sums = x.clone();
                   sum(real, sums);
                   if (number != 2 || real.rank() != 1) x.copy_from(sums);
                 })});
  all.push_back({.name = "a rank that sends zeros",
                 .found = "the gradient of 'hidden.bias'",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   if (number == 3 && real.rank() == 1) x.fill_zero();
                   sum(real, x);
                 })});
  all.push_back({.name = "a buffer that was not synchronised",
                 .found = "buffer 'average': rank 1 of 2 differs from rank 0 before the step",
                 .calls = without_broadcast("buffers")});
  all.push_back(
      {.name = "one rank with other weights", .found = "the gradient of '", .calls = without_broadcast("parameters")});
  all.push_back(
      {.name = "a stale gradient: the sums of the step before", .found = "the gradient of 'out.weight'", .calls = [] {
         const auto old = std::make_shared<Tensor>();
         return in_sums([old](Communicator& real, Tensor& x, int number) {
           sum(real, x);
           if (number != 2) return;
           const Tensor now = x.clone();
           if (old->defined()) x.copy_from(*old);
           *old = now;
         })();
       }});
  all.push_back({.name = "gradients that are never zeroed", .found = "has the norm", .keeps_gradients = true});
  all.push_back(
      {.name = "the first rank's share used by all", .found = "the gradient of '", .first_share_twice = true});
  all.push_back({.name = "the weight sum of this rank alone",
                 .found = "the weight sum",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   float* const values = x.mutable_host_data<float>();
                   const std::int64_t slot = x.numel() - tail_slot::kCount + tail_slot::kWeightSum;
                   const float mine = number == 1 ? values[slot] : 0.f;
                   sum(real, x);
                   if (number == 1) values[slot] = mine;
                 })});
  all.push_back({.name = "a weight sum that is off by less than gradients may be",
                 .found = "the weight sum",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   sum(real, x);
                   if (number != 1) return;
                   x.mutable_host_data<float>()[x.numel() - tail_slot::kCount + tail_slot::kWeightSum] *= 1.00005f;
                 })});
  all.push_back({.name = "a NaN that was not met",
                 .found = "the mark of a NaN or infinity",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   sum(real, x);
                   if (number == 1)
                     x.mutable_host_data<float>()[x.numel() - tail_slot::kCount + tail_slot::kNonFinite] = 1.f;
                 })});
  all.push_back({.name = "the sum taken twice",
                 .found = "the weight sum has the norm",
                 .calls = in_sums([](Communicator& real, Tensor& x, int) {
                   sum(real, x);
                   sum(real, x);
                 })});
  all.push_back(
      {.name = "a bucket sent before its gradient was complete", .found = "the weight sum", .sends_early = true});
  all.push_back({.name = "swapped ranges on one rank",
                 .found = "the gradient of 'hidden.weight'",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   if (number == 4 && real.rank() == 1) {
                     float* const values = x.mutable_host_data<float>();
                     std::rotate(values, values + x.numel() / 2, values + x.numel());
                   }
                   sum(real, x);
                 })});
  all.push_back({.name = "the larger gradient instead of the sum",
                 .found = "the gradient of 'hidden.bias'",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   real.all_reduce(x, number == 3 ? ReduceOp::max : ReduceOp::sum, "gradients");
                 })});
  all.push_back({.name = "gradients rounded to bf16",
                 .found = "the gradient of '",
                 .calls = in_sums([](Communicator& real, Tensor& x, int number) {
                   float* const values = x.mutable_host_data<float>();
                   for (std::int64_t i = 0; i < gradients_of(x, number); ++i) values[i] = float(bfloat16(values[i]));
                   sum(real, x);
                 })});
  all.push_back({.name = "the same dropout on all ranks", .found = "the gradient of '", .same_dropout = true});
  all.push_back({.name = "one rank with another momentum",
                 .found = "momentum of 'hidden.weight': rank 1 of 2 differs from rank 0 before the step",
                 .other_momentum = true});
  return all;
}

}  // namespace

TEST_CASE("each planted fault passes unseen without the gate, and is stopped by it on all ranks") {
  for (const Fault& fault : faults()) {
    CAPTURE(fault.name);
    const auto errors_of = [&](bool gate) {
      return comm_errors(2, kPatient, [&](Communicator& c) {
        const data::ResidentDataset dataset = make_images(41, Device::cpu());
        Training training(dataset, 16, c, fault);
        if (gate) training.check(comm::parity_batches(16, 41, 2));
        training.train(3);
      });
    };
    for (const std::string& error : errors_of(false)) CHECK(error == "");
    const std::vector<std::string> errors = errors_of(true);
    for (const std::string& error : errors) {
      contains(error, "parity gate, batch of ");
      contains(error, fault.found);
      CHECK(error == errors[0]);
    }
  }
}

TEST_CASE("what is wrong is told with the parameter, both norms and the relative difference") {
  const auto errors = comm_errors(2, kPatient, [&](Communicator& c) {
    const data::ResidentDataset dataset = make_images(40, Device::cpu());
    Training training(dataset, 16, c, faults()[0]);
    training.check({16});
  });
  contains(errors[1], "parity gate, batch of 16 images on 2 ranks: the gradient of '");
  contains(errors[1], " with 2 ranks and ");
  contains(errors[1], " on one rank that works through the same shares; the difference is 0.5 of that");
}

TEST_CASE("a right training passes with any number of ranks and any batch, and nothing changes") {
  for (const Device device : testing::test_devices()) {
    // 97 images: ragged; batches of 2: ranks without any image.
    for (const Run& run : {Run{97, 16}, Run{97, 200}, Run{11, 2}, Run{5, 1}}) {
      const std::int64_t images = run.images, batch_size = run.batch_size;
      for (const int ranks : {2, 3, 4, 8}) {
        for (const bool adam : {false, true}) {
          if (!device.is_cpu() && (ranks != 3 || batch_size != 16)) continue;
          CAPTURE(device.to_string(), images, batch_size, ranks, adam);
          std::vector<std::vector<std::vector<float>>> before(static_cast<std::size_t>(ranks)),
              after = before, gated = before, plain = before;
          std::vector<double> largest(static_cast<std::size_t>(ranks), 1.0);
          comm::run_rank_threads(ranks, kPatient, [&](Communicator& c) {
            const auto rank = static_cast<std::size_t>(c.rank());
            const data::ResidentDataset dataset = make_images(images, device);
            for (const bool gate : {true, false}) {
              Training training(dataset, batch_size, c, {}, adam);
              // Not at the beginning: momentum and counters are not zero.
              training.train(2);
              if (gate) {
                before[rank] = training.state();
                largest[rank] = training.check(comm::parity_batches(batch_size, images, ranks)).largest;
                after[rank] = training.state();
              }
              training.train(3);
              (gate ? gated : plain)[rank] = training.state();
            }
          });
          for (const double difference : largest) CHECK(difference < 1e-5);
          const bool unchanged = before == after, same_run = gated == plain;
          CHECK(unchanged);
          CHECK(same_run);
        }
      }
    }
  }
}

TEST_CASE("a training that computes its shares in pieces, with dropout, passes") {
  for (const std::int64_t pieces : {2, 3, 16}) {
    std::vector<double> largest(3, 1.0);
    comm::run_rank_threads(3, kPatient, [&](Communicator& c) {
      const data::ResidentDataset dataset = make_images(41, Device::cpu());
      Training training(dataset, 16, c, {});
      training.pieces = pieces;
      largest[static_cast<std::size_t>(c.rank())] = training.check({15, 16, 2}).largest;
    });
    CAPTURE(pieces);
    for (const double difference : largest) CHECK(difference < 1e-5);
  }
}

TEST_CASE("gradients that are exchanged in bf16 pass by as much as their rounding, and faults are found as before") {
  const Fault none{.reduce_dtype = DType::bf16};
  for (const Device device : testing::test_devices()) {
    for (const int ranks : {2, 3, 8}) {
      if (!device.is_cpu() && ranks != 3) continue;
      CAPTURE(device.to_string(), ranks);
      std::vector<double> largest(static_cast<std::size_t>(ranks), 1.0);
      const std::vector<std::string> errors = comm_errors(ranks, kPatient, [&](Communicator& c) {
        const data::ResidentDataset dataset = make_images(97, device);
        Training training(dataset, 16, c, none);
        training.train(2);
        largest[static_cast<std::size_t>(c.rank())] = training.check(comm::parity_batches(16, 97, ranks)).largest;
        training.train(3);
      });
      for (const std::string& error : errors) CHECK(error == "");
      // Only rank 0 has compared gradients: what f32 would not let pass.
      CHECK(largest[0] > 1e-4);
      CHECK(largest[0] < 0.02);
    }
  }
  for (Fault fault : faults()) {
    if (fault.name != "a dropped bucket" && fault.name != "a rank that sends zeros" &&
        fault.name != "an update that does not divide" && fault.name != "the sum taken twice") {
      continue;
    }
    CAPTURE(fault.name);
    fault.reduce_dtype = DType::bf16;
    const std::vector<std::string> errors = comm_errors(2, kPatient, [&](Communicator& c) {
      const data::ResidentDataset dataset = make_images(41, Device::cpu());
      Training training(dataset, 16, c, fault);
      training.check(comm::parity_batches(16, 41, 2));
    });
    for (const std::string& error : errors) CHECK(error.find("parity gate, batch of ") != std::string::npos);
  }
}

TEST_CASE("the batches to check are a full one and a ragged one") {
  using Sizes = std::vector<std::int64_t>;
  // The last one of the epoch, if the ranks cannot share it evenly and it is small.
  CHECK(comm::parity_batches(16, 97, 2) == Sizes{16, 1});
  CHECK(comm::parity_batches(256, 60000, 2) == Sizes{256, 5});
  CHECK(comm::parity_batches(256, 60000, 8) == Sizes{256, 23});
  CHECK(comm::parity_batches(256, 511, 2) == Sizes{256, 5});
  // The full one is ragged itself.
  CHECK(comm::parity_batches(16, 97, 3) == Sizes{16});
  CHECK(comm::parity_batches(2, 11, 8) == Sizes{2});
  // Smaller than a small one would be.
  CHECK(comm::parity_batches(4, 40, 4) == Sizes{4, 3});
  // More than there are.
  CHECK(comm::parity_batches(200, 96, 3) == Sizes{96, 8});
}

TEST_CASE("a step without a finite loss is left to the training") {
  const auto errors = comm_errors(2, kPatient, [&](Communicator& c) {
    const data::ResidentDataset dataset = make_images(40, Device::cpu());
    Training training(dataset, 16, c, {});
    training.buffer->data().fill_zero();
    training.buffer->data().mutable_host_data<float>()[0] = std::nanf("");
    training.check({16, 5});
  });
  for (const std::string& error : errors) CHECK(error == "");
}
