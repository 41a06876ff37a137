#include "engine/nn/linear.h"

#include "engine/nn/init.h"
#include "engine/ops/ops.h"

namespace heddle::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, bool bias)
    : in_features_(in_features), out_features_(out_features) {
  HEDDLE_CHECK(in_features >= 1 && out_features >= 1, "Linear(", in_features, ", ", out_features,
               "): features must be at least 1");
  weight_ = register_parameter("weight", {out_features, in_features});
  if (bias) bias_ = register_parameter("bias", {out_features});
}

Variable Linear::forward(const Variable& x) { return ops::linear(x, weight_, bias_); }

Variable Linear::forward_with_relu(const Variable& x) { return ops::linear_relu(x, weight_, bias_); }

FeatureMap Linear::trace(const FeatureMap& input) {
  if (input.channels > 0 && input.flattened) {
    HEDDLE_CHECK(in_features_ % input.channels == 0, description(), ": its input is a flattened map of ",
                 input.channels, " channels, which do not divide ", in_features_);
    HEDDLE_CHECK(map_channels_ == 0 || map_channels_ == input.channels, description(), ": it is used after maps of ",
                 map_channels_, " and of ", input.channels, " channels");
    map_channels_ = input.channels;
    set_parameter_layout("weight", {.kind = ParameterLayout::Kind::flattened_columns, .channels = input.channels});
  } else if (input.channels > 0) {
    HEDDLE_CHECK(input.channels == in_features_, description(), ": its input has ", input.channels,
                 " features in the last dimension; is a Flatten missing?");
  }
  return {.channels = out_features_};
}

std::string Linear::description() const {
  return join_text("Linear(in_features=", in_features_, ", out_features=", out_features_,
                   bias_.defined() ? ")" : ", bias=False)");
}

void Linear::reset_own_parameters(Philox& random) {
  init::torch_default(weight_.mutable_data(), bias_.defined() ? bias_.mutable_data() : Tensor(), random);
}

}  // namespace heddle::nn
