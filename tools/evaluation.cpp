#include "tools/evaluation.h"

#include <cmath>

#include "engine/backend/backend.h"
#include "engine/ops/ops.h"

namespace heddle::tools {
namespace {

// Divides 10,000, so that all batches of the usual test set have one shape.
constexpr std::int64_t kBatchSize = 500;

}  // namespace

InferenceScope::InferenceScope(nn::Module& model) : model_(model), was_training_(model.is_training()) {
  model_.train(false);
}

InferenceScope::~InferenceScope() { model_.train(was_training_); }

Evaluation evaluate(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options,
                    const std::function<bool()>& keep_going) {
  const InferenceScope scope(model);
  const Device device = dataset.images().device();
  data::DataLoader batches(
      dataset, {.batch_size = kBatchSize, .shuffle = false, .mean = options.mean, .stddev = options.stddev});
  // Results stay on the device and are read once at the end: the sums of each batch, and each image's class.
  const Tensor sums = Tensor::empty({batches.batches_per_epoch(), tail_slot::kCount}, DType::f32, device);
  const Tensor predictions = Tensor::empty({dataset.size()}, DType::i64, device);
  Evaluation result{.confusion = data::ConfusionMatrix(dataset.num_classes())};
  for (std::int64_t i = 0; i < sums.dim(0); ++i) {
    if (keep_going && !keep_going()) {
      result.finished = false;
      return result;
    }
    const std::int64_t position = batches.position();
    const std::optional<data::Batch> batch = batches.next();
    const Variable logits = model.forward(batch->images);
    ops::LossStats stats(sums.narrow(i, 1).reshape({tail_slot::kCount}));
    stats.zero();
    ops::cross_entropy(logits, batch->labels, {.reduction = ops::Reduction::sum, .stats = stats});
    Tensor classes = predictions.narrow(position, batch->size());
    backend_for(device).argmax(logits.data(), 1, classes);
  }
  const std::vector<float> values = sums.to_vector<float>();
  for (auto row = values.begin(); row != values.end(); row += tail_slot::kCount) {
    result.metrics.add(double{row[tail_slot::kLossSum]}, double{row[tail_slot::kWeightSum]},
                       std::llround(row[tail_slot::kCorrect]), std::llround(row[tail_slot::kSamples]));
  }
  const std::vector<std::uint8_t> labels = dataset.labels().to_vector<std::uint8_t>();
  result.confusion.add(std::vector<std::int64_t>(labels.begin(), labels.end()), predictions.to_vector<std::int64_t>());
  return result;
}

}  // namespace heddle::tools
