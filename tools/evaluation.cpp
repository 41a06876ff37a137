#include "tools/evaluation.h"

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
  data::DataLoader batches(
      dataset, {.batch_size = kBatchSize, .shuffle = false, .mean = options.mean, .stddev = options.stddev});
  batches.start_epoch(0);
  Evaluation result{.confusion = data::ConfusionMatrix(dataset.num_classes())};
  Tensor stats = Tensor::zeros({tail_slot::kCount}, DType::f32, dataset.images().device());
  while (const std::optional<data::Batch> batch = batches.next()) {
    if (keep_going && !keep_going()) {
      result.finished = false;
      break;
    }
    const Variable logits = model.forward(batch->images);
    stats.fill_zero();
    ops::cross_entropy(logits, batch->labels, {.reduction = ops::Reduction::sum, .stats = stats});
    result.metrics.add(stats);
    result.confusion.add(batch->labels, ops::argmax(logits, 1));
  }
  return result;
}

}  // namespace heddle::tools
