// The parity gate with synchronised batch norms: it passes what is right, also where values lie at rounding distance of
// a ReLU's corner, and stops what is wrong with what they exchange.
#include <algorithm>
#include <optional>

#include "engine/autograd/backward.h"
#include "engine/nn/activation.h"
#include "engine/nn/batch_norm.h"
#include "engine/nn/dropout.h"
#include "engine/nn/linear.h"
#include "engine/nn/random_streams.h"
#include "engine/nn/sequential.h"
#include "engine/ops/ops.h"
#include "engine/optim/sgd.h"
#include "nccl_comm/batch_cut.h"
#include "nccl_comm/data_parallel.h"
#include "nccl_comm/parity_gate.h"
#include "tests/nccl_comm/groups.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/support/catch.h"
#include "tests/support/contains.h"
#include "tests/support/devices.h"
#include "tests/support/planted_communicator.h"
#include "tests/support/relative_distance.h"

using namespace heddle;
using comm::Communicator;
using heddle::test::contains;

namespace {

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};
constexpr std::int64_t kPixels = 16, kHidden = 32, kClasses = 10;
constexpr std::int64_t kAtCorners = 1200;  // images: enough for sums to differ in their last bits

// Linear, batch norm and ReLU twice, dropout, Linear.
std::shared_ptr<nn::Module> make_net(double dropout) {
  return std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Linear>(kPixels, kHidden), std::make_shared<nn::BatchNorm2d>(kHidden),
      std::make_shared<nn::ReLU>(), std::make_shared<nn::Linear>(kHidden, kHidden),
      std::make_shared<nn::BatchNorm2d>(kHidden), std::make_shared<nn::ReLU>(), std::make_shared<nn::Dropout>(dropout),
      std::make_shared<nn::Linear>(kHidden, kClasses)});
}

struct Data {
  Tensor images, labels;
};

// at_corners: every third image is the mean of all, so that all that the first batch norm makes of it is 0 but for
// rounding. A whole batch has a multiple of three images.
Data make_data(std::int64_t images, bool at_corners, Device device, std::uint64_t seed = 3) {
  Philox random(seed);
  const auto uniform = [&] { return static_cast<float>(random.below(1000)) / 1000.f; };
  std::vector<float> center, distance, values;
  for (std::int64_t p = 0; p < kPixels; ++p) {
    center.push_back(1.f + uniform());
    distance.push_back(0.2f + uniform());
  }
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < images; ++i) {
    labels.push_back(static_cast<std::int64_t>(random.below(kClasses)));
    for (std::size_t p = 0; p < kPixels; ++p) {
      const float part = at_corners ? static_cast<float>(i % 3) - 1.f : uniform();
      values.push_back(center[p] + part * distance[p]);
    }
  }
  return {Tensor::from_values(values, {images, kPixels}, device), Tensor::from_values(labels, {images}, device)};
}

using Gather = std::function<void(Communicator& real, const Tensor& x, Tensor& y, std::string_view what)>;

// One rank's part of a training whose batch norms see the batch of all ranks.
struct Training {
  Training(const Data& all, Communicator& real, double dropout = 0, const Gather& wrong = {})
      : data(all),
        model(make_net(dropout)),
        communicator(real, {.all_reduce = {}, .broadcast = {}, .all_gather = wrong}) {
    Philox random(1);
    model->reset_parameters(random);
    model->to(all.images.device());
    for (const auto& [name, stream] : model->named_random_streams()) stream->seed = 5;
    buffer.emplace(*model);
    optimizer.emplace(*buffer, 0.05, SgdParams{.momentum = 0.9});
    random_streams.emplace(*model, optimizer->state().address_of(step_slot::kRandom), real.rank());
    parallel.emplace(*model, *buffer, communicator);
    synchronised.emplace(*model, communicator);
  }

  Variable loss(const data::Batch& batch) {
    return ops::cross_entropy(model->forward(batch.images), batch.labels,
                              {.reduction = ops::Reduction::sum, .stats = buffer->tail()});
  }
  data::Batch part(std::int64_t begin, std::int64_t n) const {
    return {data.images.narrow(begin, n), data.labels.narrow(begin, n)};
  }
  void sum_gradients(std::int64_t images) {
    random_streams->begin_step();
    optimizer->zero_grad();
    if (alone) {
      for (const auto& [path, norm] : nn::batch_norms_of(*model)) norm->synchronise(nullptr);
    }
    const std::int64_t ranks = communicator.world_size(), rank = communicator.rank();
    const std::int64_t least = images / ranks, larger = images % ranks;
    const std::int64_t begin = least * rank + std::min(rank, larger), size = least + (rank < larger ? 1 : 0);
    const std::int64_t n = comm::synchronised_pieces(images, {.shares = static_cast<int>(ranks), .pieces = pieces});
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t first = size * i / n, last = size * (i + 1) / n;
      backward(loss(part(begin + first, last - first)), i == n - 1 ? parallel->hook() : LeafReadyHook());
    }
    parallel->finish();
  }
  void update() { optimizer->step({.divide_by_weight_sum = true}); }
  comm::ParityResult check(const std::vector<std::int64_t>& batches) {
    return comm::check_parity({.model = *model,
                               .optimizer = *optimizer,
                               .sum_gradients = [this](std::int64_t images) { sum_gradients(images); },
                               .update = [this] { update(); },
                               .load_whole = [this](std::int64_t images) { return part(0, images); },
                               .loss = [this](const data::Batch& batch) { return loss(batch); },
                               .pieces = pieces,
                               .synchronised = &*synchronised},
                              communicator, batches);
  }
  std::vector<float> gradients() { return buffer->gradients().to_vector<float>(); }

  Data data;
  std::shared_ptr<nn::Module> model;
  testing::PlantedCommunicator communicator;
  std::int64_t pieces = 1;
  bool alone = false;  // the fault: batch norms that meet nobody
  std::optional<nn::ParameterBuffer> buffer;
  std::optional<optim::Sgd> optimizer;
  std::optional<nn::RandomStreams> random_streams;
  std::optional<comm::DataParallel> parallel;
  std::optional<nn::SynchronisedBatchNorms> synchronised;
};

// The rows of y, one a rank.
Tensor row(Tensor& y, const Communicator& real, int rank) {
  return y.reshape({real.world_size(), y.numel() / real.world_size()}).narrow(rank, 1);
}

struct Fault {
  std::string name, found;
  std::function<Gather()> gather = [] { return Gather(); };  // made for each rank
  bool alone = false;
};

// A fault in one of the two exchanges: wrong(real, x, y) after the right one.
std::function<Gather()> behind(std::string_view of,
                               const std::function<void(Communicator&, const Tensor&, Tensor&)>& wrong) {
  return [=] {
    return [=](Communicator& real, const Tensor& x, Tensor& y, std::string_view what) {
      real.all_gather(x, y, what);
      if (what == of) wrong(real, x, y);
    };
  };
}

constexpr std::string_view kStatistics = "batch norm statistics", kSums = "batch norm gradients";

std::vector<Fault> faults() {
  std::vector<Fault> all;
  const std::string forward = "of share 1 of 2 in the forward pass of the batch norm '1'",
                    backward = "of share 1 of 2 in the backward pass of the batch norm '4'";
  all.push_back({.name = "rank 0's statistics taken for those of both",
                 .found = forward,
                 .gather = behind(kStatistics, [](Communicator& real, const Tensor&, Tensor& y) {
                   row(y, real, 1).copy_from(row(y, real, 0));
                 })});
  all.push_back({.name = "own statistics taken for those of both",
                 .found = forward,
                 .gather = behind(kStatistics, [](Communicator& real, const Tensor& x, Tensor& y) {
                   for (int r = 0; r < 2; ++r) row(y, real, r).copy_from(x.reshape({1, x.numel()}));
                 })});
  all.push_back({.name = "gradient sums of the other rank left out",
                 .found = backward,
                 .gather = behind(kSums, [](Communicator& real, const Tensor&, Tensor& y) {
                   row(y, real, 1 - real.rank()).fill_zero();
                 })});
  all.push_back({.name = "one rank that does not take over the other's statistics",
                 .found = "of share 1 of 2 in the forward pass of the batch norm '4'",
                 .gather = behind(kStatistics, [](Communicator& real, const Tensor& x, Tensor& y) {
                   if (real.rank() == 1) row(y, real, 0).copy_from(x.reshape({1, x.numel()}));
                 })});
  all.push_back({.name = "a variance that is off by a thousandth",
                 .found = "the sum of squared differences " + forward,
                 .gather = behind(kStatistics, [](Communicator& real, const Tensor&, Tensor& y) {
                   auto* const values = row(y, real, 1).mutable_host_data<double>();
                   for (std::int64_t c = kHidden; c < 2 * kHidden; ++c) values[c] *= 1.001;
                 })});
  all.push_back({.name = "the sums of the exchange before",
                 .found = "of share 0 of 2 in the backward pass of the batch norm '1'",
                 .gather = [] {
                   const auto old = std::make_shared<Tensor>();
                   return behind(kSums, [old](Communicator&, const Tensor&, Tensor& y) {
                     const Tensor now = y.clone();
                     if (old->defined()) y.copy_from(*old);
                     *old = now;
                   })();
                 }});
  all.push_back(
      {.name = "batch norms that exchange nothing",
       .found = "exchange 1 of the batch norms is of the forward pass of '1' on one rank, and ranks make none",
       .alone = true});
  return all;
}

}  // namespace

TEST_CASE("the gate passes synchronised batch norms with any number of ranks, pieces and dropout") {
  for (const testing::GroupKind& kind : testing::group_kinds()) {
    for (const Device device : kind.devices) {
      for (const int ranks : {2, 3, 4}) {
        if (ranks > kind.most_ranks) continue;
        for (const std::int64_t pieces : {1, 3}) {
          CAPTURE(kind.name, device.to_string(), ranks, pieces);
          std::vector<double> largest(static_cast<std::size_t>(ranks), 1.0);
          testing::run_group(kind, ranks, kPatient, [&](Communicator& c) {
            Training training(make_data(48, false, kind.device_of(c.rank(), device)), c, 0.25);
            training.pieces = pieces;
            // Of 2 images on 4 ranks two have none.
            largest[static_cast<std::size_t>(c.rank())] = training.check({48, 17, 2}).largest;
          });
          for (const double difference : largest) CHECK(difference < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("values at rounding distance of a ReLU's corner pass the gate, whose single rank has the same ones open") {
  for (const Device device : testing::test_devices()) {
    double apart = 0;
    for (const int ranks : {2, 3}) {
      for (const std::uint64_t seed : {3, 4, 5, 6}) {
        CAPTURE(device.to_string(), ranks, seed);
        std::vector<double> largest(static_cast<std::size_t>(ranks), 1.0);
        std::vector<float> together, alone;
        comm::run_rank_threads(ranks, kPatient, [&](Communicator& c) {
          Training training(make_data(kAtCorners, true, device, seed), c);
          largest[static_cast<std::size_t>(c.rank())] = training.check({kAtCorners}).largest;
          training.sum_gradients(kAtCorners);
          if (c.rank() == 0) together = training.gradients();
        });
        comm::run_rank_threads(1, kPatient, [&](Communicator& c) {
          Training training(make_data(kAtCorners, true, device, seed), c);
          training.sum_gradients(kAtCorners);
          alone = training.gradients();
        });
        for (const double difference : largest) CHECK(difference < 1e-5);
        apart = std::max(apart, testing::relative_distance(together, alone));
      }
    }
    // What the gate would find between the whole batch in one pass and the ranks; it allows 1e-4.
    CHECK(apart > 1e-3);
  }
}

TEST_CASE("what is wrong with the exchanges of batch norms is stopped by the gate on all ranks") {
  for (const Fault& fault : faults()) {
    CAPTURE(fault.name);
    const auto errors_of = [&](bool gate) {
      return testing::comm_errors(2, kPatient, [&](Communicator& c) {
        Training training(make_data(48, false, Device::cpu()), c, 0.25, fault.gather());
        training.alone = fault.alone;
        if (gate) training.check({48, 5});
        training.sum_gradients(48);
        training.update();
      });
    };
    for (const std::string& error : errors_of(false)) CHECK(error == "");
    const std::vector<std::string> errors = errors_of(true);
    for (const std::string& error : errors) {
      contains(error, "parity gate, batch of 48 images on 2 ranks: ");
      contains(error, fault.found);
    }
  }
}
