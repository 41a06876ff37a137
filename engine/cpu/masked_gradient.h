// The last step of gradients that kernels leave in plain form: the mask of a ReLU in front, and adding up. Used by
// conv2d and matmul.
#pragma once

#include "engine/backend/op_params.h"
#include "engine/tensor/tensor.h"

namespace heddle::cpu {

// dx = relu_mask > 0 ? dx : 0, in place. relu_mask has dx's shape and dtype.
void apply_relu_mask(const Tensor& relu_mask, Tensor& dx);
// dx += gradient, where relu_mask > 0 if it is defined. gradient is scratch: it may be changed.
void add_gradient(Tensor& gradient, const Tensor& relu_mask, Tensor& dx);
// y = max(0, y) in place; NaN stays NaN, so that a broken run is noticed.
void relu_in_place(Tensor& y);

}  // namespace heddle::cpu
