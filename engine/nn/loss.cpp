#include "engine/nn/loss.h"

namespace heddle::nn {
namespace {

const char* name_of(ops::Reduction reduction) {
  switch (reduction) {
    case ops::Reduction::mean: return "mean";
    case ops::Reduction::sum: return "sum";
    case ops::Reduction::none: return "none";
  }
  return "?";
}

}  // namespace

Variable CrossEntropyLoss::forward(std::span<const Variable> inputs) {
  HEDDLE_CHECK(inputs.size() == 2, description(), ": forward takes logits and labels, ", inputs.size(),
               " inputs were given");
  return forward(inputs[0], inputs[1].data());
}

Variable CrossEntropyLoss::forward(const Variable& logits, const Tensor& labels) {
  return ops::cross_entropy(logits, labels, options_);
}

std::string CrossEntropyLoss::description() const {
  return join_text("CrossEntropyLoss(label_smoothing=", options_.label_smoothing,
                   ", reduction=", name_of(options_.reduction), ")");
}

Variable MSELoss::forward(std::span<const Variable> inputs) {
  HEDDLE_CHECK(inputs.size() == 2, description(), ": forward takes x and a target, ", inputs.size(),
               " inputs were given");
  return forward(inputs[0], inputs[1]);
}

Variable MSELoss::forward(const Variable& x, const Variable& target) { return ops::mse_loss(x, target, reduction_); }

std::string MSELoss::description() const { return join_text("MSELoss(reduction=", name_of(reduction_), ")"); }

}  // namespace heddle::nn
