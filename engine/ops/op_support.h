// What the op files share: the backend of a tensor, and the ways in which gradients are written. Not installed.
#pragma once

#include <functional>

#include "engine/autograd/node.h"
#include "engine/backend/backend.h"
#include "engine/ops/shape_rules.h"

namespace heddle::ops {

inline Backend& backend_of(const Tensor& x) { return backend_for(x.device()); }

// Every bit of a tensor's dimensions; all but the last `kept`.
inline std::uint32_t all_dims_mask(int rank, int kept = 0) { return (1u << (rank - kept)) - 1u; }

// A tensor of shape () with x's dtype and device. Throws: InvalidArgument if an integer dtype cannot hold value.
Tensor scalar_like(const char* op, double value, const Tensor& x);

// Gives gradient, whose shape input was broadcast to: as it is, or summed over the stretched dimensions.
void give_reduced(BackwardContext& ctx, const Node& node, int input, const Tensor& gradient);

// Writes the gradient that compute(out) stores into a tensor of `shape`, which input was broadcast to. Straight into
// its place where input was not stretched and nothing else was written before.
void write_gradient(BackwardContext& ctx, const Node& node, int input, const Shape& shape,
                    const std::function<void(Tensor& out)>& compute);

// Adds gradient, whose shape broadcasts to the input's, to every place that it stands for.
void give_expanded(BackwardContext& ctx, const Node& node, int input, const Tensor& gradient);

// Gradient before max(0, .) of the node whose output is y: dy * (y > 0), unless the consumer did that already.
Tensor grad_before_relu(BackwardContext& ctx, const Tensor& y);

// Gradients of a layer's weight (input 1) and bias (input 2, if there is one), as far as they are wanted.
// write(dw, db, mode) is the backend's call. The bias alone is the sum of dy over all but the last dimension, unless
// the op has its own way.
void write_weight_gradients(BackwardContext& ctx, const Tensor& dy, bool has_bias,
                            const std::function<void(Tensor& dw, Tensor* db, WriteMode mode)>& write,
                            const std::function<void(GradTarget& db)>& write_bias_alone = {});

// Makes memory ready for a primitive that can only add.
inline void prepare_to_add(GradTarget& target) {
  if (target.mode == WriteMode::store) target.tensor.fill_zero();
}

}  // namespace heddle::ops
