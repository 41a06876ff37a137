#include "engine/nn/activation.h"

#include "engine/ops/ops.h"

namespace heddle::nn {

Variable ReLU::forward(const Variable& x) { return ops::relu(x); }

Variable Sigmoid::forward(const Variable& x) { return ops::sigmoid(x); }

Variable Tanh::forward(const Variable& x) { return ops::tanh(x); }

Variable GELU::forward(const Variable& x) { return ops::gelu(x); }

Variable Softmax::forward(const Variable& x) { return ops::softmax(x, dim_); }

Variable LogSoftmax::forward(const Variable& x) { return ops::log_softmax(x, dim_); }

}  // namespace heddle::nn
