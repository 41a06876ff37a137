#include "engine/nn/flatten.h"

#include "engine/ops/ops.h"

namespace heddle::nn {

Variable Flatten::forward(const Variable& x) {
  HEDDLE_CHECK(channels_ == 0 || x.shape().rank() != 4 || x.dim(3) == channels_, description(),
               ": the model was built ", "for maps of ", channels_, " channels here, got ", x.shape());
  return ops::flatten(x, begin_dim_, end_dim_);
}

std::string Flatten::description() const {
  return join_text("Flatten(start_dim=", begin_dim_, ", end_dim=", end_dim_, ")");
}

FeatureMap Flatten::trace(const FeatureMap& input) {
  if (begin_dim_ != 1 || end_dim_ != -1) return {};
  channels_ = input.channels;
  return {.channels = input.channels, .flattened = true};
}

}  // namespace heddle::nn
