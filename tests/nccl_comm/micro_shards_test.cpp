// Gradients of micro-shards: the same bits for every number of ranks and threads and every kind of group, with dropout
// and augmentation, and up to rounding what ordinary data-parallel training computes.
#include "nccl_comm/micro_shards.h"

#include <optional>

#include "engine/autograd/backward.h"
#include "engine/core/parallel.h"
#include "engine/data/data_loader.h"
#include "engine/nn/linear.h"
#include "engine/ops/ops.h"
#include "engine/optim/adam.h"
#include "nccl_comm/data_parallel.h"
#include "nccl_comm/parity_gate.h"
#include "tests/nccl_comm/groups.h"
#include "tests/nccl_comm/rank_results.h"
#include "tests/nccl_comm/small_model.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/instrumented.h"
#include "tests/support/relative_distance.h"

using namespace heddle;
using comm::Communicator;
using comm::MicroShard;

namespace {

constexpr comm::CommunicatorOptions kPatient{.timeout = std::chrono::seconds(60)};
using testing::SmallModel;
using testing::SmallModelWithBuffer;
constexpr std::int64_t kSide = 6, kPixels = kSide * kSide, kClasses = 10;
constexpr testing::SmallModelSizes kSizes{.pixels = kPixels, .hidden = 33, .classes = kClasses};

data::ResidentDataset make_images(std::int64_t count, Device device) {
  Philox random(3);
  std::vector<std::uint8_t> images(static_cast<std::size_t>(count * kPixels)), labels;
  for (std::uint8_t& pixel : images) pixel = static_cast<std::uint8_t>(random.below(256));
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(static_cast<std::uint8_t>(random.below(kClasses)));
  return {images, labels, kSide, kSide, 1, kClasses, device};
}

struct Recipe {
  std::int64_t images = 97, batch_size = 16;
  double dropout = 0.25;
  bool frozen = false;  // the first layer
  int steps = 9;
};

// One rank's part of a training in micro-shards, or of an ordinary one.
class Training {
 public:
  Training(const Recipe& recipe, const data::ResidentDataset& dataset, Communicator* communicator, bool in_shards)
      : communicator_(communicator),
        model_(std::make_shared<SmallModel>(kSizes, recipe.dropout)),
        loader_(dataset, {.batch_size = recipe.batch_size,
                          .seed = 7,
                          .random_flip = true,
                          .random_crop = 2,
                          .rank = in_shards || communicator == nullptr ? 0 : communicator->rank(),
                          .world_size = in_shards || communicator == nullptr ? 1 : communicator->world_size()}) {
    Philox random(5);
    model_->reset_parameters(random);
    model_->to(dataset.images().device());
    if (recipe.frozen) {
      for (nn::NamedVariable& p : model_->hidden->named_parameters()) p.variable.set_requires_grad(false);
    }
    buffer_.emplace(*model_);
    adam_.emplace(*buffer_, 0.01, AdamParams{.weight_decay = 1e-3});
    random_.emplace(*model_, adam_->state().address_of(step_slot::kRandom));
    if (communicator != nullptr) parallel_.emplace(*model_, *buffer_, *communicator);
    if (!in_shards) return;
    const auto make_replica = [&] { return std::make_shared<SmallModel>(kSizes, recipe.dropout); };
    shards_.emplace(*model_, *buffer_, adam_->state().address_of(step_slot::kRandom), make_replica, communicator);
    for (int i = 0; i < shards_->range().size(); ++i) {
      loaders_.emplace_back(loader_, shards_->shard(i).index, comm::kMicroShards);
    }
  }

  void sum_gradients(std::int64_t images) {
    if (shards_) {
      shards_->compute([&](MicroShard& shard) {
        const auto place = static_cast<std::size_t>(shard.index - shards_->range().begin);
        const data::Batch batch = loaders_[place].load(images);
        if (batch.size() > 0) backward(loss_of(*shard.model, shard.parameters, batch));
      });
      shards_->exchange();
      return shards_->finish();
    }
    adam_->zero_grad();
    const data::Batch batch = loader_.load(images);
    if (batch.size() > 0) backward(loss_of(*model_, *buffer_, batch));
    if (parallel_) parallel_->finish();
  }

  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (loader_.next_size() == 0) {
        loader_.start_epoch(++epoch_);
        for (data::DataLoader& loader : loaders_) loader.follow(loader_);
      }
      const std::int64_t images = loader_.next_size();
      sum_gradients(images);
      loader_.advance(images);
      update();
    }
  }

  comm::ParityResult check_parity(std::int64_t images) {
    data::DataLoader whole(loader_.dataset(), loader_.options());
    return comm::check_parity({.model = *model_,
                               .optimizer = *adam_,
                               .sum_gradients =
                                   [&](std::int64_t n) {
                                     for (data::DataLoader& loader : loaders_) loader.rewind();
                                     sum_gradients(n);
                                   },
                               .update = [&] { update(); },
                               .load_whole =
                                   [&](std::int64_t n) {
                                     whole.rewind();
                                     return whole.load(n);
                                   },
                               .loss = [&](const data::Batch& batch) { return loss_of(*model_, *buffer_, batch); },
                               .shares = comm::kMicroShards},
                              *communicator_, {images});
  }

  // Weights, gradients of the last step and their tail.
  std::vector<float> state() {
    std::vector<float> all = buffer_->data().to_vector<float>();
    const std::vector<float> gradients = buffer_->gradients_with_tail().to_vector<float>();
    all.insert(all.end(), gradients.begin(), gradients.end());
    return all;
  }

 private:
  static Variable loss_of(nn::Module& model, nn::ParameterBuffer& parameters, const data::Batch& batch) {
    return ops::cross_entropy(model.forward(batch.images), batch.labels,
                              {.reduction = ops::Reduction::sum, .stats = parameters.tail()});
  }
  void update() { adam_->step({.divide_by_weight_sum = true, .max_gradient_norm = 0.5}); }

  Communicator* communicator_;
  std::shared_ptr<SmallModel> model_;
  data::DataLoader loader_;
  std::vector<data::DataLoader> loaders_;
  std::optional<nn::ParameterBuffer> buffer_;
  std::optional<optim::Adam> adam_;
  std::optional<nn::RandomStreams> random_;
  std::optional<comm::DataParallel> parallel_;
  std::optional<comm::MicroShards> shards_;
  std::int64_t epoch_ = 0;
};

std::vector<float> train_alone(const Recipe& recipe, Device device, bool in_shards = true) {
  const data::ResidentDataset dataset = make_images(recipe.images, device);
  Training training(recipe, dataset, nullptr, in_shards);
  training.train(recipe.steps);
  return training.state();
}

// By rank.
std::vector<std::vector<float>> train_ranks(const testing::GroupKind& kind, const Recipe& recipe, Device device,
                                            int ranks, bool in_shards = true) {
  std::vector<std::vector<float>> states(static_cast<std::size_t>(ranks));
  testing::run_group(kind, ranks, kPatient, [&](Communicator& c) {
    const data::ResidentDataset dataset = make_images(recipe.images, kind.device_of(c.rank(), device));
    Training training(recipe, dataset, &c, in_shards);
    training.train(recipe.steps);
    states[static_cast<std::size_t>(c.rank())] = training.state();
  });
  return states;
}

// Sets the program's threads while it lives.
class Threads {
 public:
  explicit Threads(int n) : before_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace

TEST_CASE("micro-shards give the same bits for any number of ranks and threads, with dropout") {
  // Ragged shares and a ragged last batch; micro-shards and ranks without images.
  for (const Recipe& recipe :
       {Recipe{}, Recipe{.images = 97, .batch_size = 97}, Recipe{.images = 11, .batch_size = 2}}) {
    for (const testing::GroupKind& kind : testing::group_kinds()) {
      for (const Device device : kind.devices) {
        // On the CPU it is the group of its hosts.
        if (device.is_cpu() && kind.gpu_each) continue;
        // The simulation of a GPU takes its time.
        if (!device.is_cpu() && recipe.batch_size != 16) continue;
        std::vector<float> wanted;
        {
          const Threads one(1);
          wanted = train_alone(recipe, device);
        }
        for (const int ranks : {1, 2, 3, 4, 5, 8, 9}) {
          if (!device.is_cpu() && (ranks % 2 != 0 || ranks > kind.most_ranks)) continue;
          if (test::kWatchesRaces && (recipe.batch_size != 16 || (ranks != 1 && ranks != 3))) continue;
          for (const int threads : {1, 2, 3, 8}) {
            if (!device.is_cpu() && threads != 1) continue;
            // Many more threads than processors find nothing new.
            if (threads == 8 && ranks > 2) continue;
            if (test::kWatchesRaces && threads != 1 && threads != 3) continue;
            CAPTURE(kind.name, device.to_string(), recipe.images, recipe.batch_size, ranks, threads);
            const Threads several(threads * ranks);
            bool same = ranks > 1 || train_alone(recipe, device) == wanted;
            for (const std::vector<float>& state : train_ranks(kind, recipe, device, ranks)) {
              same = same && state == wanted;
            }
            CHECK(same);
          }
        }
      }
    }
  }
}

TEST_CASE("sums of a communicator have other bits for another number of ranks, which micro-shards are there for") {
  const Recipe recipe{.dropout = 0};
  const testing::GroupKind& kind = testing::group_kinds().front();
  const bool differ =
      train_ranks(kind, recipe, Device::cpu(), 2, false)[0] != train_ranks(kind, recipe, Device::cpu(), 4, false)[0];
  CHECK(differ);
}

TEST_CASE("micro-shards train what the whole batch trains, up to rounding") {
  for (const Device device : testing::test_devices()) {
    for (const bool frozen : {false, true}) {
      const Recipe recipe{.dropout = 0, .frozen = frozen, .steps = 4};
      CAPTURE(device.to_string(), frozen);
      const std::vector<float> whole = train_alone(recipe, device, false);
      CHECK(testing::relative_distance(train_alone(recipe, device), whole) < 1e-5);
      // With the last step's gradients: 16 samples of weight 1.
      const std::size_t tail = whole.size() - static_cast<std::size_t>(tail_slot::kCount);
      CHECK(whole[tail + tail_slot::kSamples] == 16);
      CHECK(train_alone(recipe, device)[tail + tail_slot::kSamples] == 16);
    }
  }
}

TEST_CASE("a training in micro-shards passes the parity gate, with dropout") {
  for (const int ranks : {2, 3, 5}) {
    std::vector<double> largest(static_cast<std::size_t>(ranks), 1.0);
    const std::vector<std::string> errors = testing::comm_errors(ranks, kPatient, [&](Communicator& c) {
      const data::ResidentDataset dataset = make_images(97, Device::cpu());
      Training training({}, dataset, &c, true);
      for (const std::int64_t images : {16, 5}) {
        largest[static_cast<std::size_t>(c.rank())] = training.check_parity(images).largest;
      }
    });
    CAPTURE(ranks);
    for (const std::string& error : errors) CHECK(error == "");
    for (const double difference : largest) CHECK(difference < 1e-5);
  }
}

TEST_CASE("a buffer that is not f32 is refused, and so is a replica of another kind") {
  const auto make = [](nn::Module& model, const comm::ModelFactory& make_replica) {
    nn::ParameterBuffer buffer(model);
    const std::int64_t counter = 0;
    comm::MicroShards(model, buffer, &counter, make_replica);
  };
  struct WithCount : SmallModel {
    WithCount() : SmallModel(kSizes, 0) { register_buffer("count", Tensor::zeros({1}, DType::i64)); }
  } with_count;
  CHECK_THROWS_AS(make(with_count, [] { return std::make_shared<WithCount>(); }), NotSupported);
  CHECK_THROWS_WITH(make(with_count, [] { return std::make_shared<WithCount>(); }), Catch::Contains("'count' is i64"));
  SmallModelWithBuffer with_buffer(kSizes, 0);
  CHECK_THROWS_WITH(make(with_buffer, [] { return std::make_shared<SmallModel>(kSizes, 0); }),
                    Catch::Contains("0 values in buffers, the model 4"));
  SmallModel model(kSizes, 0.5);
  CHECK_THROWS_WITH(make(model, [] { return std::make_shared<nn::Linear>(3, 4); }),
                    Catch::Contains("has 0 parts, the model's has 3"));
  CHECK_THROWS_WITH(make(model, [] { return nullptr; }), Catch::Contains("no new model"));
  CHECK_THROWS_WITH(make(model, [&] { return std::shared_ptr<nn::Module>(&model, [](nn::Module*) {}); }),
                    Catch::Contains("no new model"));
}

TEST_CASE("what fails in a micro-shard is thrown by compute(), and the next step is possible") {
  SmallModel model(kSizes, 0);
  Philox random(1);
  model.reset_parameters(random);
  nn::ParameterBuffer buffer(model);
  const std::int64_t counter = 0;
  comm::MicroShards shards(model, buffer, &counter, [] { return std::make_shared<SmallModel>(kSizes, 0); });
  const Threads threads(3);
  CHECK_THROWS_WITH(shards.compute([](MicroShard& shard) {
    if (shard.index >= 4) throw Error(join_text("micro-shard ", shard.index));
  }),
                    Catch::Contains("micro-shard "));
  shards.compute([](MicroShard&) {});
  shards.exchange();
  shards.finish();
  const std::vector<float> sums = buffer.gradients_with_tail().to_vector<float>();
  CHECK(sums == std::vector<float>(sums.size(), 0.0f));
}
