// Inside of Variable; only autograd/ includes it.
#pragma once

#include <memory>

#include "engine/autograd/node.h"
#include "engine/tensor/tensor.h"

namespace heddle::detail {

struct VariableState {
  Tensor data;
  std::shared_ptr<Node> node;  // nullptr: leaf
  int output_index = 0;
  bool requires_grad = false;
  GradSlot slot;  // leaf: its gradient, kept between passes; slot.grad may be a view of a flat buffer
  std::uint64_t visited = 0;
};

// Writes the gradient of a leaf that is known to be another one's into its own memory.
void settle(VariableState& leaf);
// The same for all leaves that take this one's gradient, before it changes.
void settle_followers(VariableState& source);

}  // namespace heddle::detail
