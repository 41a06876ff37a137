// The moving averages of an optimiser's weights in the place of the weights, for an evaluation in the middle of a
// training.
#pragma once

#include <functional>

#include "optimizer.h"

namespace heddle::optim {

// Calls work() while the model's parameters hold the optimiser's averages (Optimizer::average_weights), then puts the
// weights back, also after an exception. Everything stays in its memory, so recorded work may be part of it. Without
// averages it only calls work(). Buffers, such as running statistics, are not averaged. Queues two copies on a GPU and
// needs memory for one more copy of the weights. Throws: what work throws.
void use_averages(Optimizer& optimizer, const std::function<void()>& work);

}  // namespace heddle::optim
