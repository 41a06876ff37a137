// The simulated cuDNN's pointwise operations, with broadcasting, and reductions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cudasim/cudnn_compute.h"

namespace cudasim {
namespace {

// An operand laid over the shape of the result: a stride of 0 repeats it.
struct Broadcast {
  const double* data = nullptr;
  std::vector<std::int64_t> strides;
};

Broadcast over(const Values& operand, const std::vector<std::int64_t>& dims) {
  Broadcast broadcast{.data = operand.data.data(), .strides = std::vector<std::int64_t>(dims.size(), 0)};
  if (operand.numel() == 1) return broadcast;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (operand.dims[i] != 1) broadcast.strides[i] = operand.strides[i];
  }
  return broadcast;
}

// result = combine(x, b, t), element by element.
template <class Combine>
void combine_all(const Broadcast& x, const Broadcast& b, const Broadcast& t, Values& result, const Combine& combine) {
  const std::vector<std::size_t> order = storage_order(result.dims.size());
  const std::size_t innermost = order.back();
  const std::int64_t length = result.dims[innermost];
  const std::int64_t x_step = x.strides[innermost], b_step = b.strides[innermost], t_step = t.strides[innermost];
  for (std::int64_t start = 0; start < result.numel(); start += length) {
    const double *x_at = x.data, *b_at = b.data, *t_at = t.data;
    std::int64_t rest = start / length;
    for (std::size_t i = order.size() - 1; i-- > 0;) {
      const std::size_t axis = order[i];
      const std::int64_t index = rest % result.dims[axis];
      rest /= result.dims[axis];
      x_at += index * x.strides[axis];
      b_at += index * b.strides[axis];
      t_at += index * t.strides[axis];
    }
    double* result_at = result.data.data() + start;
    for (std::int64_t i = 0; i < length; ++i)
      result_at[i] = combine(x_at[i * x_step], b_at[i * b_step], t_at[i * t_step]);
  }
}

// Source: cuDNN's manual, CUDNN_ATTR_POINTWISE_RELU_*: below the lower clip a line of that slope, above it x, at most
// the upper clip. A NaN passes.
double relu(const PointwiseInfo& parameters, double x) {
  const double lower = parameters.relu_lower_clip;
  double y = x < lower ? lower + parameters.relu_lower_clip_slope * (x - lower) : x;
  if (parameters.relu_upper_clip > 0) y = std::min(y, parameters.relu_upper_clip);
  return y;
}

double relu_gradient(const PointwiseInfo& parameters, double x, double dy) {
  if (parameters.relu_upper_clip > 0 && x >= parameters.relu_upper_clip) return 0;
  return x > parameters.relu_lower_clip ? dy : parameters.relu_lower_clip_slope * dy;
}

// Calls visit with the function of the mode.
template <class Visitor>
void visit_mode(const PointwiseInfo& parameters, const Visitor& visit) {
  switch (parameters.mode) {
    case CUDNN_POINTWISE_ADD: return visit([](double x, double b, double) { return x + b; });
    case CUDNN_POINTWISE_ADD_SQUARE: return visit([](double x, double b, double) { return x + b * b; });
    case CUDNN_POINTWISE_SUB: return visit([](double x, double b, double) { return x - b; });
    case CUDNN_POINTWISE_MUL: return visit([](double x, double b, double) { return x * b; });
    case CUDNN_POINTWISE_DIV: return visit([](double x, double b, double) { return x / b; });
    case CUDNN_POINTWISE_MAX: return visit([](double x, double b, double) { return std::max(x, b); });
    case CUDNN_POINTWISE_MIN: return visit([](double x, double b, double) { return std::min(x, b); });
    case CUDNN_POINTWISE_ABS: return visit([](double x, double, double) { return std::abs(x); });
    case CUDNN_POINTWISE_NEG: return visit([](double x, double, double) { return -x; });
    case CUDNN_POINTWISE_EXP: return visit([](double x, double, double) { return std::exp(x); });
    case CUDNN_POINTWISE_LOG: return visit([](double x, double, double) { return std::log(x); });
    case CUDNN_POINTWISE_SQRT: return visit([](double x, double, double) { return std::sqrt(x); });
    case CUDNN_POINTWISE_RSQRT: return visit([](double x, double, double) { return 1 / std::sqrt(x); });
    case CUDNN_POINTWISE_RECIPROCAL: return visit([](double x, double, double) { return 1 / x; });
    case CUDNN_POINTWISE_RELU_FWD: return visit([&](double x, double, double) { return relu(parameters, x); });
    case CUDNN_POINTWISE_RELU_BWD:
      return visit([&](double x, double dy, double) { return relu_gradient(parameters, x, dy); });
    case CUDNN_POINTWISE_CMP_EQ: return visit([](double x, double b, double) { return x == b ? 1.0 : 0.0; });
    case CUDNN_POINTWISE_CMP_NEQ: return visit([](double x, double b, double) { return x != b ? 1.0 : 0.0; });
    case CUDNN_POINTWISE_CMP_GT: return visit([](double x, double b, double) { return x > b ? 1.0 : 0.0; });
    case CUDNN_POINTWISE_CMP_GE: return visit([](double x, double b, double) { return x >= b ? 1.0 : 0.0; });
    case CUDNN_POINTWISE_CMP_LT: return visit([](double x, double b, double) { return x < b ? 1.0 : 0.0; });
    case CUDNN_POINTWISE_CMP_LE: return visit([](double x, double b, double) { return x <= b ? 1.0 : 0.0; });
    case CUDNN_POINTWISE_BINARY_SELECT: return visit([](double x, double b, double t) { return t != 0 ? x : b; });
    default: return visit([](double x, double, double) { return x; });
  }
}

// How a reduction takes in a value, and what it makes of the end result of n values.
double accumulate(cudnnReduceTensorOp_t reduction, double sum, double value) {
  switch (reduction) {
    case CUDNN_REDUCE_TENSOR_MUL: return sum * value;
    case CUDNN_REDUCE_TENSOR_MIN: return std::min(sum, value);
    case CUDNN_REDUCE_TENSOR_MAX: return std::max(sum, value);
    case CUDNN_REDUCE_TENSOR_AMAX: return std::max(sum, std::abs(value));
    case CUDNN_REDUCE_TENSOR_NORM1: return sum + std::abs(value);
    case CUDNN_REDUCE_TENSOR_NORM2: return sum + value * value;
    default: return sum + value;
  }
}

double neutral(cudnnReduceTensorOp_t reduction) {
  switch (reduction) {
    case CUDNN_REDUCE_TENSOR_MUL: return 1;
    case CUDNN_REDUCE_TENSOR_MIN: return std::numeric_limits<double>::infinity();
    case CUDNN_REDUCE_TENSOR_MAX: return -std::numeric_limits<double>::infinity();
    default: return 0;
  }
}

}  // namespace

void compute_pointwise(const Operation& operation, TensorTable& tensors) {
  const bool gradient = operation.pointwise.mode == CUDNN_POINTWISE_RELU_BWD;
  const auto output = gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC;
  const auto second = gradient ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC : CUDNN_ATTR_OPERATION_POINTWISE_BDESC;
  Values result(operation.find(output)->dims);
  const Broadcast x = over(tensors.input(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), result.dims);
  const Broadcast b = operation.find(second) == nullptr ? x : over(tensors.input(operation, second), result.dims);
  const bool selects = operation.find(CUDNN_ATTR_OPERATION_POINTWISE_TDESC) != nullptr;
  const Broadcast t = selects ? over(tensors.input(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC), result.dims) : x;
  const double alpha = operation.alpha, alpha2 = operation.alpha2;
  visit_mode(operation.pointwise, [&](const auto& function) {
    combine_all(x, b, t, result, [&](double x_value, double b_value, double t_value) {
      return function(alpha * x_value, alpha2 * b_value, t_value);
    });
  });
  tensors.output(operation, output, std::move(result));
}

void compute_reduction(const Operation& operation, TensorTable& tensors) {
  const Values& x = tensors.input(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  Values y(operation.find(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)->dims);
  std::fill(y.data.begin(), y.data.end(), neutral(operation.reduction));
  const std::vector<std::size_t> order = storage_order(x.dims.size());
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    std::int64_t target = 0, rest = i;
    for (std::size_t j = order.size(); j-- > 0;) {
      const std::size_t axis = order[j];
      if (y.dims[axis] != 1) target += rest % x.dims[axis] * y.strides[axis];
      rest /= x.dims[axis];
    }
    double& sum = y.data[static_cast<std::size_t>(target)];
    sum = accumulate(operation.reduction, sum, x.data[static_cast<std::size_t>(i)]);
  }
  const double count = static_cast<double>(x.numel()) / static_cast<double>(y.numel());
  for (double& sum : y.data) {
    if (operation.reduction == CUDNN_REDUCE_TENSOR_AVG) sum /= count;
    if (operation.reduction == CUDNN_REDUCE_TENSOR_NORM2) sum = std::sqrt(sum);
  }
  tensors.output(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, std::move(y));
}

}  // namespace cudasim
