#include "tools/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/ops/ops.h"

namespace heddle::tools {
namespace {

// Divides 10,000, so that all batches of the usual test set have one shape.
constexpr std::int64_t kBatchSize = 500;

data::DataLoaderOptions loader_options(const data::DataLoaderOptions& options) {
  return {.batch_size = kBatchSize, .shuffle = false, .mean = options.mean, .stddev = options.stddev};
}

}  // namespace

InferenceScope::InferenceScope(const std::vector<nn::Module*>& models) {
  for (nn::Module* const model : models) {
    models_.emplace_back(model, model->is_training());
    model->train(false);
  }
}

InferenceScope::~InferenceScope() {
  for (const auto& [model, was_training] : models_) model->train(was_training);
}

Evaluator::Evaluator(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options,
                     bool record, comm::Communicator* communicator, comm::MicroShards* shards)
    : dataset_(dataset),
      batches_(dataset, loader_options(options)),
      graph_(dataset.images().device(), {.enabled = record}),
      communicator_(communicator),
      shards_(shards),
      in_shards_(shards != nullptr),
      rows_(in_shards_ ? comm::kMicroShards : 1) {
  const Device device = dataset.images().device();
  const std::int64_t batch = std::min(kBatchSize, dataset.size());
  std::vector<std::int64_t> places(static_cast<std::size_t>(batch));
  std::iota(places.begin(), places.end(), std::int64_t{0});
  first_places_ = Tensor::from_values(places, {batch}, device);
  sums_ = Tensor::empty({batches_.batches_per_epoch() * rows_, tail_slot::kCount}, DType::f32, device);
  predictions_ = Tensor::empty({dataset.size(), 1}, DType::i64, device);
  if (in_shards_) {
    for (int i = 0; i < shards->range().size(); ++i) {
      add_part(*shards->shard(i).model, shards->shard(i).index, comm::kMicroShards);
    }
  } else {
    add_part(model, communicator == nullptr ? 0 : communicator->rank(),
             communicator == nullptr ? 1 : communicator->world_size());
  }
}

void Evaluator::add_part(nn::Module& model, int number, int parts) {
  const Device device = sums_.device();
  parts_.push_back({.model = &model,
                    .loader = data::DataLoader(batches_, number, parts),
                    .number = number,
                    .batch_sums = Tensor::empty({tail_slot::kCount}, DType::f32, device),
                    .row = Tensor::empty({1}, DType::i64, device),
                    .places = Tensor::empty(first_places_.shape(), DType::i64, device)});
}

std::vector<nn::Module*> Evaluator::models() const {
  std::vector<nn::Module*> all;
  for (const Part& part : parts_) all.push_back(part.model);
  return all;
}

Evaluation Evaluator::run(const std::function<bool()>& keep_going) {
  if (shards_ != nullptr) shards_->follow_model();  // the running statistics of now
  const InferenceScope scope(models());
  rewind();
  bool stopped = false;
  while (const std::int64_t images = batches_.next_size()) {
    stopped = keep_going && !keep_going();
    if (stopped) break;
    graph_.run({.input = {images}}, [&] { evaluate_batch(images); });
    batches_.advance(images);
  }
  if (any_stopped(stopped)) {
    Evaluation nothing{.confusion = data::ConfusionMatrix(dataset_.num_classes())};
    nothing.finished = false;
    return nothing;
  }
  return read_results();
}

bool Evaluator::any_stopped(bool stopped) {
  if (communicator_ == nullptr) return stopped;
  Tensor flag = Tensor::from_values(std::vector<std::int64_t>{stopped ? 1 : 0}, {1}, sums_.device());
  communicator_->all_reduce(flag, comm::ReduceOp::max, "end of the evaluation");
  return flag.item() != 0;
}

void Evaluator::rewind() {
  Backend& backend = backend_for(sums_.device());
  batches_.rewind();
  for (Tensor* results : {&sums_, &predictions_}) backend.fill(*results, 0);
  for (Part& part : parts_) {
    part.loader.rewind();
    backend.fill(part.row, in_shards_ ? static_cast<double>(part.number) : 0.0);
    backend.cast(first_places_, part.places);
  }
}

// Recorded on a GPU, as Trainer::train_step().
void Evaluator::evaluate_batch(std::int64_t images) {
  if (!in_shards_) return evaluate_part(parts_.front(), images);
  comm::for_each_shard(sums_.device(), static_cast<int>(parts_.size()), [&](int i) {
    const NoGradGuard no_grad;  // of this thread
    evaluate_part(parts_[static_cast<std::size_t>(i)], images);
  });
}

void Evaluator::evaluate_part(Part& part, std::int64_t images) {
  Backend& backend = backend_for(sums_.device());
  const data::Batch batch = part.loader.load(images);
  if (batch.size() > 0) {
    const Variable logits = part.model->forward(batch.images);
    ops::LossStats stats(part.batch_sums);
    stats.zero();
    ops::cross_entropy(logits, batch.labels, {.reduction = ops::Reduction::sum, .stats = stats});
    Tensor classes = Tensor::empty({batch.size()}, DType::i64, sums_.device());
    backend.argmax(logits.data(), 1, classes);
    // Both were zero, so adding stores. No two parts have a row or a place in common.
    backend.index_add(part.batch_sums.reshape({1, tail_slot::kCount}), part.row, sums_);
    backend.index_add(classes.reshape({batch.size(), 1}),
                      part.places.narrow(part.loader.share_begin(images), batch.size()), predictions_);
  }
  backend.unary(UnaryOp::add_scalar, part.row, static_cast<double>(rows_), 0, part.row);
  backend.unary(UnaryOp::add_scalar, part.places, static_cast<double>(images), 0, part.places);
}

Evaluation Evaluator::read_results() {
  if (communicator_ != nullptr) {
    // Where another rank was at work a rank has zeros.
    communicator_->all_reduce(sums_, comm::ReduceOp::sum, "sums of the evaluation");
    communicator_->all_reduce(predictions_, comm::ReduceOp::sum, "predictions");
  }
  Evaluation result{.confusion = data::ConfusionMatrix(dataset_.num_classes())};
  const std::vector<float> values = sums_.to_vector<float>();
  for (auto row = values.begin(); row != values.end(); row += tail_slot::kCount) {
    result.metrics.add(double{row[tail_slot::kLossSum]}, double{row[tail_slot::kWeightSum]},
                       std::llround(row[tail_slot::kCorrect]), std::llround(row[tail_slot::kSamples]));
  }
  const std::vector<std::uint8_t> labels = dataset_.labels().to_vector<std::uint8_t>();
  result.confusion.add(std::vector<std::int64_t>(labels.begin(), labels.end()), predictions_.to_vector<std::int64_t>());
  return result;
}

Evaluation evaluate(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options) {
  return Evaluator(model, dataset, options).run();
}

}  // namespace heddle::tools
