// Dropout.
#pragma once

#include <cstdint>

#include "module.h"

namespace heddle::nn {

// In training each element is dropped with probability p and the others grow by 1/(1-p); in evaluation x goes through.
// It has its own random stream: reset_parameters() draws the stream's seed, each training pass moves on by the number
// of elements, and checkpoints keep the place, so that a resumed run drops the same elements.
class Dropout final : public Module {
 public:
  // Throws: InvalidArgument unless p is in [0,1).
  explicit Dropout(double p = 0.5, std::uint64_t seed = 0);

  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override { return join_text("Dropout(p=", p_, ")"); }
  FeatureMap trace(const FeatureMap& input) override { return input; }

 protected:
  void reset_own_parameters(Philox& random) override;
  RandomStream* own_random_stream() noexcept override { return &random_; }

 private:
  double p_;
  RandomStream random_;
};

}  // namespace heddle::nn
