#include "engine/ops/op_support.h"

#include <cmath>

namespace heddle::ops {
namespace {
const Shape& input_shape(const Node& node, int input) { return node.inputs()[static_cast<std::size_t>(input)].shape; }
}  // namespace

Tensor scalar_like(const char* op, double value, const Tensor& x) {
  if (!is_floating(x.dtype())) {
    const double limit = x.dtype() == DType::u8 ? 0x1p8 : x.dtype() == DType::i32 ? 0x1p31 : 0x1p63;
    HEDDLE_CHECK(value == std::trunc(value) && value >= (x.dtype() == DType::u8 ? 0 : -limit) && value < limit, op,
                 ": x is ", x.dtype(), " ", x.shape(), ", which cannot hold the scalar ", value);
  }
  Tensor scalar = Tensor::empty({}, x.dtype(), x.device());
  backend_of(x).fill(scalar, value);
  return scalar;
}

void give_reduced(BackwardContext& ctx, const Node& node, int input, const Tensor& gradient) {
  const std::uint32_t mask = broadcast_mask(input_shape(node, input), gradient.shape());
  if (mask == 0) return ctx.give(input, gradient);
  GradTarget target = ctx.target(input);
  backend_of(gradient).reduce(ReduceKind::sum, gradient, mask, target.tensor, target.mode);
}

void write_gradient(BackwardContext& ctx, const Node& node, int input, const Shape& shape,
                    const std::function<void(Tensor& out)>& compute) {
  const Edge& edge = node.inputs()[static_cast<std::size_t>(input)];
  Backend& backend = backend_for(edge.device);
  const std::uint32_t mask = broadcast_mask(edge.shape, shape);
  if (mask != 0) {
    Tensor full = Tensor::empty(shape, edge.dtype, edge.device);
    compute(full);
    GradTarget target = ctx.target(input);
    backend.reduce(ReduceKind::sum, full, mask, target.tensor, target.mode);
    return;
  }
  GradTarget target = ctx.target(input);
  Tensor place = target.tensor.reshape(shape);
  if (target.mode == WriteMode::store) return compute(place);
  Tensor extra = Tensor::empty(shape, edge.dtype, edge.device);
  compute(extra);
  backend.axpy(1.0, extra, place);
}

void give_expanded(BackwardContext& ctx, const Node& node, int input, const Tensor& gradient) {
  if (gradient.numel() == input_shape(node, input).numel()) return ctx.give(input, gradient);
  GradTarget target = ctx.target(input);
  prepare_to_add(target);
  backend_of(gradient).binary(BinaryOp::add, target.tensor, gradient, target.tensor);
}

Tensor grad_before_relu(BackwardContext& ctx, const Tensor& y) {
  const Tensor& dy = ctx.grad_output();
  if (ctx.grad_output_is_masked()) return dy;
  Tensor masked = Tensor::empty_like(dy);
  backend_of(dy).unary_backward(UnaryOp::relu, Tensor(), y, dy, 0, 0, masked, WriteMode::store);
  return masked;
}

void write_weight_gradients(BackwardContext& ctx, const Tensor& dy, bool has_bias,
                            const std::function<void(Tensor& dw, Tensor* db, WriteMode mode)>& write,
                            const std::function<void(GradTarget& db)>& write_bias_alone) {
  const auto bias_alone = [&](GradTarget db) {
    if (write_bias_alone) return write_bias_alone(db);
    backend_of(dy).reduce(ReduceKind::sum, dy, all_dims_mask(dy.rank(), 1), db.tensor, db.mode);
  };
  const bool want_bias = has_bias && ctx.needs_grad(2);
  if (!ctx.needs_grad(1)) {
    if (want_bias) bias_alone(ctx.target(2));
    return;
  }
  GradTarget dw = ctx.target(1);
  if (!want_bias) return write(dw.tensor, nullptr, dw.mode);
  GradTarget db = ctx.target(2);
  if (dw.mode == db.mode) return write(dw.tensor, &db.tensor, dw.mode);
  // One of the two was reached before by another op (a weight that two layers share, with biases of their own).
  write(dw.tensor, nullptr, dw.mode);
  bias_alone(db);
}

}  // namespace heddle::ops
