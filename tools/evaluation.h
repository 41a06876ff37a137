// Runs a model over a data set without training it.
#pragma once

#include <functional>

#include "engine/autograd/node.h"
#include "engine/comm/communicator.h"
#include "engine/data/data_loader.h"
#include "engine/data/metrics.h"
#include "engine/nn/module.h"
#include "engine/step/step_graph.h"

namespace heddle::tools {

struct Evaluation {
  data::RunningMetrics metrics;  // cross-entropy without label smoothing, and right answers
  data::ConfusionMatrix confusion;
  bool finished = true;  // false: stopped by keep_going
};

// Evaluation mode and no history while it lives.
class InferenceScope {
 public:
  explicit InferenceScope(nn::Module& model);
  ~InferenceScope();
  InferenceScope(const InferenceScope&) = delete;
  InferenceScope& operator=(const InferenceScope&) = delete;

 private:
  nn::Module& model_;
  bool was_training_;
  NoGradGuard no_grad_;
};

// Evaluates one model on one data set again and again. A pass reads every image once, in the order of the file,
// normalised as the options say; their shuffling and augmentation are not used. On a GPU each batch is a recorded step:
// in a pass the host waits and copies only at its end, for the results.
class Evaluator {
 public:
  // Model, data set and communicator must outlive it, and the model's parameters must stay where they are. record:
  // false calls each batch, for debugging. With a communicator each rank evaluates its share of every batch, and all
  // get the result of the whole.
  Evaluator(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options,
            bool record = true, comm::Communicator* communicator = nullptr);
  // keep_going is asked between batches; returning false stops, with a communicator all ranks. Throws: what the model
  // throws; CommError.
  Evaluation run(const std::function<bool()>& keep_going = {});

 private:
  void rewind();
  void evaluate_batch(std::int64_t images);
  // Whether this or another rank was stopped.
  bool any_stopped(bool stopped);
  Evaluation read_results();

  nn::Module& model_;
  const data::ResidentDataset& dataset_;
  data::DataLoader batches_;
  step::StepGraph graph_;
  comm::Communicator* communicator_;
  Tensor batch_sums_;   // f32 (tail_slot::kCount): of the batch at hand
  Tensor sums_;         // f32 (batches, tail_slot::kCount)
  Tensor predictions_;  // i64 (images, 1)
  // Where the batch at hand goes in both, and what moves on from batch to batch: they are read on the device, so that a
  // recorded batch finds its place.
  Tensor row_;           // i64 (1)
  Tensor places_;        // i64 (batch)
  Tensor first_places_;  // i64 (batch): 0, 1, ...
};

// One pass.
Evaluation evaluate(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options);

}  // namespace heddle::tools
