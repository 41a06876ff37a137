// Runs a model over a data set without training it.
#pragma once

#include <functional>

#include "engine/autograd/node.h"
#include "engine/data/data_loader.h"
#include "engine/data/metrics.h"
#include "engine/nn/module.h"

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

// Every image once, in the order of the file, normalised as the options say; their shuffling and augmentation are not
// used. keep_going is asked between batches; returning false stops. Throws: what the model throws.
Evaluation evaluate(nn::Module& model, const data::ResidentDataset& dataset, const data::DataLoaderOptions& options,
                    const std::function<bool()>& keep_going = {});

}  // namespace heddle::tools
