// Trainings of a model with batch norm on several ranks: running statistics, synchronised batch norm, micro-shards and
// the parity gate, as `heddle train` puts them together.
#include <algorithm>
#include <memory>
#include <vector>

#include "datasets/synthetic.h"
#include "engine/core/parallel.h"
#include "engine/nn/activation.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/flatten.h"
#include "engine/nn/linear.h"
#include "engine/nn/pooling.h"
#include "engine/nn/sequential.h"
#include "models/residual.h"
#include "nccl_comm/rank_threads.h"
#include "tests/nccl_comm/groups.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/instrumented.h"
#include "tests/support/relative_distance.h"
#include "tools/evaluation.h"
#include "tools/rank_stream.h"
#include "tools/trainer.h"

namespace heddle::test {
namespace {

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};

// Two convolutions with batch norm on 28x28 images; the second one sees 7x7.
std::shared_ptr<nn::Module> make_chain() {
  const nn::Conv2dOptions conv{.kernel_size = 3, .stride = 2, .padding = 1};
  return std::make_shared<nn::Sequential>(
      std::vector<std::shared_ptr<nn::Module>>{
          std::make_shared<nn::Conv2d>(1, 4, conv), std::make_shared<nn::BatchNorm2d>(4), std::make_shared<nn::ReLU>(),
          std::make_shared<nn::Conv2d>(4, 6, conv), std::make_shared<nn::BatchNorm2d>(6), std::make_shared<nn::ReLU>(),
          std::make_shared<nn::Flatten>(), std::make_shared<nn::Linear>(7 * 7 * 6, 10)},
      1);
}

// A residual block, whose shortcut's bias has the gradient of a batch norm's shift.
std::shared_ptr<nn::Module> make_residual() {
  return std::make_shared<nn::Sequential>(
      std::vector<std::shared_ptr<nn::Module>>{
          std::make_shared<models::Residual>(1, 4, models::ResidualOptions{.stride = 4}),
          std::make_shared<nn::Flatten>(), std::make_shared<nn::Linear>(7 * 7 * 4, 10)},
      1);
}

using MakeNet = std::shared_ptr<nn::Module> (*)();

data::ResidentDataset resident(const datasets::ImageDataset& part, Device device) {
  return {part.images, part.labels, part.height, part.width, part.channels, part.num_classes, device};
}

struct Training {
  Training(const tools::Settings& settings, const datasets::ImageDatasetPair& data, Device device,
           comm::Communicator* communicator, MakeNet make_net = make_chain)
      : stream(device, communicator),
        model(make_net()),
        train(resident(data.train, device)),
        trainer(settings, drawn(*model, device), train, {}, communicator, make_net) {}

  static nn::Module& drawn(nn::Module& model, Device device) {
    Philox random(1);
    model.reset_parameters(random);
    model.to(device);
    return model;
  }
  std::vector<float> weights() { return trainer.optimizer().parameters().data().to_vector<float>(); }
  std::vector<float> buffers() const {
    std::vector<float> all;
    for (const nn::NamedVariable& b : model->named_buffers()) {
      for (const float v : b.variable.data().to_vector<float>()) all.push_back(v);
    }
    return all;
  }
  void train_epoch() {
    trainer.start_epoch();
    while (trainer.advance()) {
    }
    trainer.settle_buffers();
    trainer.finish_epoch();
  }

  tools::RankStream stream;
  std::shared_ptr<nn::Module> model;
  data::ResidentDataset train;
  tools::Trainer trainer;
};

struct Result {
  std::vector<float> weights, buffers;
  std::string differs;  // between the ranks, after an epoch
  double parity = -1;
  bool parity_left_buffers = false;
};

tools::Settings settings_of(std::int64_t batch_size) {
  tools::Settings settings;
  settings.batch_size = batch_size;
  settings.momentum = 0.9;
  settings.lr = 0.02;
  settings.augment = "flip";
  settings.steps_per_launch = 1;
  return settings;
}

Result run(const tools::Settings& settings, const datasets::ImageDatasetPair& data, Device device,
           comm::Communicator* communicator, int epochs) {
  Result result;
  Training training(settings, data, device, communicator);
  const std::vector<float> before = training.buffers();
  result.parity = training.trainer.check_parity().largest;
  result.parity_left_buffers = training.buffers() == before;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    training.train_epoch();
    result.differs += training.trainer.compare_replicas(true);
  }
  result.weights = training.weights();
  result.buffers = training.buffers();
  return result;
}

// By rank.
std::vector<Result> run_ranks(const testing::GroupKind& kind, int ranks, const tools::Settings& settings,
                              const datasets::ImageDatasetPair& data, Device device, int epochs) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  testing::run_group(kind, ranks, kPatient, [&](comm::Communicator& c) {
    results[static_cast<std::size_t>(c.rank())] = run(settings, data, kind.device_of(c.rank(), device), &c, epochs);
  });
  return results;
}

const datasets::ImageDatasetPair& images() {
  // With batches of 10 the last one has 2 images: on 3 ranks one has none.
  static const datasets::ImageDatasetPair data = datasets::make_synthetic({.n_train = 32, .n_test = 10});
  return data;
}

}  // namespace

TEST_CASE("ranks have the same running statistics after each epoch, and the parity gate leaves them as they were") {
  for (const testing::GroupKind& kind : testing::group_kinds()) {
    for (const Device device : kind.devices) {
      for (const int ranks : {2, 3}) {
        if ((kWatchesRaces && ranks == 3) || ranks > kind.most_ranks) continue;
        CAPTURE(kind.name, device.to_string(), ranks);
        for (const Result& result : run_ranks(kind, ranks, settings_of(10), images(), device, 2)) {
          CHECK(result.differs.empty());
          CHECK(result.parity < 1e-4);
          CHECK(result.parity_left_buffers);
        }
      }
    }
  }
}

TEST_CASE("steps of ranks are the same recorded and called, with a batch in which a rank has no image") {
  // Batches of 10 and then 2 images, often enough for each to be called, recorded and replayed.
  constexpr int kEpochs = 5;
  for (const testing::GroupKind& kind : testing::group_kinds()) {
    for (const Device device : kind.devices) {
      for (const int ranks : {2, 3}) {
        if (ranks > kind.most_ranks) continue;
        CAPTURE(kind.name, device.to_string(), ranks);
        const auto weights = [&](bool recorded) {
          tools::Settings settings = settings_of(10);
          settings.graph = recorded;
          std::vector<std::vector<float>> all(static_cast<std::size_t>(ranks));
          testing::run_group(kind, ranks, kPatient, [&](comm::Communicator& c) {
            Training training(settings, images(), kind.device_of(c.rank(), device), &c, make_residual);
            for (int epoch = 0; epoch < kEpochs; ++epoch) training.train_epoch();
            all[static_cast<std::size_t>(c.rank())] = training.weights();
          });
          for (const std::vector<float>& one : all) CHECK(one == all[0]);
          return all[0];
        };
        CHECK(weights(true) == weights(false));
      }
    }
  }
}

TEST_CASE("with synchronised batch norms several ranks train what one trains on the whole batch") {
  const bool pieces = GENERATE(false, true);
  for (const testing::GroupKind& kind : testing::group_kinds()) {
    for (const Device device : kind.devices) {
      tools::Settings settings = settings_of(10);
      settings.accumulate = pieces ? 2 : 1;
      tools::Settings one = settings;
      const Result whole = run(one, images(), device, nullptr, 1);
      settings.sync_bn = true;
      for (const int ranks : {2, 3}) {
        // The pieces of 3 ranks are other images than those of one.
        if ((pieces && ranks == 3) || (kWatchesRaces && ranks == 3) || ranks > kind.most_ranks) continue;
        CAPTURE(kind.name, device.to_string(), ranks, pieces);
        const std::vector<Result> all = run_ranks(kind, ranks, settings, images(), device, 1);
        for (const Result& result : all) {
          CHECK(result.differs.empty());
          CHECK(result.parity < 1e-4);
          CHECK(result.parity_left_buffers);
          CHECK(result.weights == all[0].weights);
          CHECK(result.buffers == all[0].buffers);
          // Two pieces of two ranks are cut otherwise than two of one.
          if (pieces) continue;
          CHECK(testing::relative_distance(result.weights, whole.weights) < 1e-5);
          CHECK(testing::relative_distance(result.buffers, whole.buffers) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("a reproducible training with batch norm has the same bits for every number of ranks and threads") {
  tools::Settings settings = settings_of(16);
  settings.reproducible = true;
  for (const Device device : testing::test_devices()) {
    const Result wanted = run(settings, images(), device, nullptr, 2);
    CHECK(std::any_of(wanted.buffers.begin(), wanted.buffers.end(), [](float v) { return v != 0 && v != 1; }));
    for (const testing::GroupKind& kind : testing::group_kinds()) {
      if (std::find(kind.devices.begin(), kind.devices.end(), device) == kind.devices.end()) continue;
      for (const int ranks : {1, 2, 3, 4}) {
        if ((kWatchesRaces && ranks != 2) || ranks > kind.most_ranks) continue;
        CAPTURE(kind.name, device.to_string(), ranks);
        for (const Result& result : run_ranks(kind, ranks, settings, images(), device, 2)) {
          CHECK(result.weights == wanted.weights);
          CHECK(result.buffers == wanted.buffers);
          CHECK(result.differs.empty());
          CHECK((ranks == 1 || result.parity < 1e-4));
          CHECK(result.parity_left_buffers);
        }
      }
    }
  }
}

TEST_CASE("a reproducible training evaluates with the running statistics of its weights") {
  tools::Settings settings = settings_of(16);
  settings.reproducible = true;
  Training training(settings, images(), Device::cpu(), nullptr);
  training.train_epoch();
  const data::ResidentDataset test = resident(images().test, Device::cpu());
  const double in_shards =
      tools::Evaluator(*training.model, test, {}, true, nullptr, training.trainer.micro_shards()).run().metrics.loss();
  CHECK(in_shards == Approx(tools::evaluate(*training.model, test, {}).metrics.loss()).epsilon(1e-5));
}

TEST_CASE("the bias of a convolution in front of a batch norm never moves") {
  tools::Settings settings = settings_of(10);
  settings.weight_decay = 0;
  Training training(settings, images(), Device::cpu(), nullptr);
  const auto values = [&](const std::string& name) {
    for (const nn::NamedVariable& p : training.model->named_parameters()) {
      if (p.name == name) return p.variable.data().to_vector<float>();
    }
    return std::vector<float>();
  };
  const std::vector<float> bias = values("0.bias"), weight = values("0.weight"), last = values("7.bias");
  training.trainer.start_epoch();
  while (training.trainer.advance()) {
  }
  CHECK(values("0.bias") == bias);
  CHECK(values("0.weight") != weight);
  CHECK(values("7.bias") != last);
}

}  // namespace heddle::test
