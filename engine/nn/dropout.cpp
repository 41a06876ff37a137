#include "engine/nn/dropout.h"

#include "engine/ops/ops.h"

namespace heddle::nn {

Dropout::Dropout(double p, std::uint64_t seed) : p_(p), random_{.seed = seed} {
  HEDDLE_CHECK(p >= 0 && p < 1, description(), ": p must be in [0, 1)");
}

Variable Dropout::forward(const Variable& x) {
  if (!is_training() || p_ == 0) return x;
  Variable y = ops::dropout(x, p_, random_);
  random_.offset += static_cast<std::uint64_t>(x.numel());
  return y;
}

void Dropout::reset_own_parameters(Philox& random) {
  const std::uint64_t high = random.next_u32();
  random_.seed = (high << 32) | random.next_u32();
  random_.offset = 0;
}

}  // namespace heddle::nn
