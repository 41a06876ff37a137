// Runs the history backwards from a loss.
#pragma once

#include <functional>

#include "variable.h"

namespace heddle {

// Called once for each leaf of the graph, the moment its gradient is complete.
using LeafReadyHook = std::function<void(Variable& leaf)>;

struct BackwardOptions {
  // Keeps saved values, so that backward() can run again over the same graph.
  bool retain_graph = false;
  // Gradient of the start; undefined: ones. Needed shape: the start's.
  Tensor gradient;
  // Asks for gradients that can be differentiated again. Not offered: throws NotSupported.
  bool create_graph = false;
};

// Adds d(start)/d(leaf) to the gradient of every leaf that requires one (the first contribution after zero_grad()
// stores). Iterative, in reverse order of creation, so the order of additions is fixed. start must have one element
// unless options.gradient is given. Throws: InvalidArgument; Error if a saved value was changed or released; what ops
// throw.
void backward(const Variable& start, const LeafReadyHook& leaf_ready = {}, const BackwardOptions& options = {});

}  // namespace heddle
