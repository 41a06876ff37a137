// From feature maps to rows.
#pragma once

#include <cstdint>

#include "module.h"

namespace heddle::nn {

// Dimensions [begin_dim, end_dim] become one, in memory order: (N,H,W,C) -> (N, H*W*C). A view.
class Flatten final : public Module {
 public:
  explicit Flatten(int begin_dim = 1, int end_dim = -1) : begin_dim_(begin_dim), end_dim_(end_dim) {}

  // Throws: InvalidArgument if the map has not the channels that the model was built for.
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  FeatureMap trace(const FeatureMap& input) override;

 private:
  int begin_dim_, end_dim_;
  std::int64_t channels_ = 0;  // of the maps, as far as trace() knows
};

}  // namespace heddle::nn
