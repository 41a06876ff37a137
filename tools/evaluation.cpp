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

data::DataLoaderOptions loader_options(const data::DataLoaderOptions& options, const comm::Communicator* communicator) {
  return {.batch_size = kBatchSize,
          .shuffle = false,
          .mean = options.mean,
          .stddev = options.stddev,
          .rank = communicator == nullptr ? 0 : communicator->rank(),
          .world_size = communicator == nullptr ? 1 : communicator->world_size()};
}

}  // namespace

InferenceScope::InferenceScope(nn::Module& model) : model_(model), was_training_(model.is_training()) {
  model_.train(false);
}

InferenceScope::~InferenceScope() { model_.train(was_training_); }

Evaluator::Evaluator(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options,
                     bool record, comm::Communicator* communicator)
    : model_(model),
      dataset_(dataset),
      batches_(dataset, loader_options(options, communicator)),
      graph_(dataset.images().device(), {.enabled = record}),
      communicator_(communicator) {
  const Device device = dataset.images().device();
  const std::int64_t batch = std::min(kBatchSize, dataset.size());
  batch_sums_ = Tensor::empty({tail_slot::kCount}, DType::f32, device);
  sums_ = Tensor::empty({batches_.batches_per_epoch(), tail_slot::kCount}, DType::f32, device);
  predictions_ = Tensor::empty({dataset.size(), 1}, DType::i64, device);
  row_ = Tensor::empty({1}, DType::i64, device);
  places_ = Tensor::empty({batch}, DType::i64, device);
  std::vector<std::int64_t> places(static_cast<std::size_t>(batch));
  std::iota(places.begin(), places.end(), std::int64_t{0});
  first_places_ = Tensor::from_values(places, {batch}, device);
}

Evaluation Evaluator::run(const std::function<bool()>& keep_going) {
  const InferenceScope scope(model_);
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
  for (Tensor* results : {&sums_, &predictions_, &row_}) backend.fill(*results, 0);
  backend.cast(first_places_, places_);
}

// Recorded on a GPU, as Trainer::train_step().
void Evaluator::evaluate_batch(std::int64_t images) {
  Backend& backend = backend_for(sums_.device());
  const data::Batch batch = batches_.load(images);
  if (batch.size() > 0) {
    const Variable logits = model_.forward(batch.images);
    ops::LossStats stats(batch_sums_);
    stats.zero();
    ops::cross_entropy(logits, batch.labels, {.reduction = ops::Reduction::sum, .stats = stats});
    Tensor classes = Tensor::empty({batch.size()}, DType::i64, sums_.device());
    backend.argmax(logits.data(), 1, classes);
    // Both were zero, so adding stores.
    backend.index_add(batch_sums_.reshape({1, tail_slot::kCount}), row_, sums_);
    backend.index_add(classes.reshape({batch.size(), 1}), places_.narrow(batches_.share_begin(images), batch.size()),
                      predictions_);
  }
  backend.unary(UnaryOp::add_scalar, row_, 1, 0, row_);
  backend.unary(UnaryOp::add_scalar, places_, static_cast<double>(images), 0, places_);
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
