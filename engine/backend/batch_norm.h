// The operands of batch norm's primitives in backend.h. Plain data, no checks: ops/ checks once for all backends.
//
// A channel is an index of the last dimension: images (N,H,W,C) have C channels, features (N,F) have F; rows are all
// the other indices. With xhat = (x - mean) inv_std:
//   y = scale xhat + shift (+ addend), then max(0, .) if relu;   dz = dy where that ReLU was open.
// Channel vectors have the shape (C) and the dtype f32, f64 where x is f64, whatever else x has. "undefined" means that
// the operand is not there or the result is not wanted.
#pragma once

#include <cstdint>

#include "../tensor/tensor.h"
#include "op_params.h"

namespace heddle {

// What the ranks of a synchronised batch norm exchange, a flat tensor of f64 whatever x has, so that the parts of
// several ranks give what their rows on one rank give, and round to the same statistics:
//   forward:  [0,C) the mean of the rank's own x, [C,2C) the sum of squared differences from that mean;
//   backward: [0,C) the sum of dz, [C,2C) the sum of dz xhat, both over the rank's own rows;
//   [2C] the rank's own number of rows; the rest 0.
// From there on, (ranks, this) are the parts of all ranks in the order of the ranks, which every rank joins the same
// way, so that all have the same bits.
constexpr std::int64_t batch_norm_exchange_numel(std::int64_t channels) noexcept { return 2 * channels + 4; }

struct BatchNormForward {
  Tensor x = {};                  // (..,C)
  Tensor scale = {}, shift = {};  // (C)
  Tensor addend = {};             // of x's shape and dtype, or undefined
  bool relu = false;
  double eps = 1e-5;
  // true: mean and variance of x over all but the last dimension, and the running statistics move on; false: the
  // running statistics are the statistics, and stay.
  bool batch_statistics = true;
  // running = (1 - momentum) running + momentum new; the new variance is unbiased (divided by rows - 1). They never
  // take in what is not finite: without rows both stay, with one row the variance, and with a NaN or infinity in a
  // channel of x, that channel's.
  double momentum = 0.1;
  Tensor exchanged = {};  // undefined, or f64 (ranks, batch_norm_exchange_numel): the batch is that of all ranks
  Tensor running_mean = {}, running_var = {};  // (C); both undefined with batch_statistics: none are kept

  Tensor y = {};                   // of x's shape and dtype
  Tensor mean = {}, inv_std = {};  // (C), what was used; both undefined if no gradient is wanted
  Tensor mask = {};                // what Backend::batch_norm_mask made, or undefined
};

struct BatchNormBackward {
  Tensor x = {}, dy = {};          // (..,C)
  Tensor scale = {}, shift = {};   // (C)
  Tensor mean = {}, inv_std = {};  // (C), as the forward pass left them
  bool relu = false;
  // With relu what the forward pass wrote: its mask, or where batch_norm_mask made none its y, which is above 0 where
  // the ReLU was open.
  Tensor mask = {}, y = {};
  bool batch_statistics = true;  // as in the forward pass; false: mean and inv_std do not depend on x

  // Gradients, each undefined if not wanted. dscale and dshift are sums over the own rows, on any number of ranks.
  Tensor dscale = {}, dshift = {};  // (C)
  WriteMode dscale_mode = WriteMode::store, dshift_mode = WriteMode::store;
  Tensor dx = {};  // of x's shape and dtype; may not be dy
  WriteMode dx_mode = WriteMode::store;
  Tensor x_relu_mask = {};  // undefined, or of x's shape: dx is multiplied by (x_relu_mask > 0) before it is written
  Tensor daddend = {};      // dz: dy, where the ReLU was open
  WriteMode daddend_mode = WriteMode::store;
};

}  // namespace heddle
