// The fully connected layer.
#pragma once

#include <cstdint>

#include "module.h"

namespace heddle::nn {

// x (..,in_features) -> x weight^T + bias (..,out_features). Parameters: "weight" (out,in), "bias" (out). A ReLU that
// follows is computed in the same pass.
class Linear final : public Module {
 public:
  // Throws: InvalidArgument unless both are at least 1.
  Linear(std::int64_t in_features, std::int64_t out_features, bool bias = true);

  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  bool can_fuse_relu() const override { return true; }
  Variable forward_with_relu(const Variable& x) override;
  // After a Flatten it learns the channels of the map, which tell what its columns mean.
  FeatureMap trace(const FeatureMap& input) override;

  const Variable& weight() const noexcept { return weight_; }
  const Variable& bias() const noexcept { return bias_; }  // undefined without

 protected:
  void reset_own_parameters(Philox& random) override;

 private:
  std::int64_t in_features_, out_features_;
  std::int64_t map_channels_ = 0;
  Variable weight_, bias_;
};

}  // namespace heddle::nn
