// Element-wise ops with one operand, activations among them, and operands that are scalars.
#include <cmath>

#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

// What the derivative is written in.
enum class Needs { operand, result, nothing };

Needs needs_of(UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
    case UnaryOp::sqrt:
    case UnaryOp::relu:
    case UnaryOp::sigmoid:
    case UnaryOp::tanh: return Needs::result;
    case UnaryOp::abs:
    case UnaryOp::log:
    case UnaryOp::gelu:
    case UnaryOp::pow_scalar:
    case UnaryOp::clamp: return Needs::operand;
    case UnaryOp::copy:
    case UnaryOp::neg:
    case UnaryOp::add_scalar:
    case UnaryOp::mul_scalar: break;
  }
  return Needs::nothing;
}

class UnaryNode final : public Node {
 public:
  UnaryNode(const char* name, UnaryOp op, double a, double b) : name_(name), op_(op), a_(a), b_(b) {}
  void save(const Tensor& x, const Tensor& y) {
    if (needs_of(op_) == Needs::operand) x_ = x;
    if (needs_of(op_) == Needs::result) y_ = y;
  }
  const char* name() const noexcept override { return name_; }
  // dx = dy f'(x): neg -1, abs sign(x), exp y, log 1/x, sqrt 1/(2y), relu [y>0], sigmoid y(1-y), tanh 1-y^2,
  // gelu Phi(x) + x phi(x), pow a x^(a-1), clamp [a<=x<=b], add 1, mul a.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    if (op_ == UnaryOp::add_scalar || (op_ == UnaryOp::relu && ctx.grad_output_is_masked())) return ctx.give(0, dy);
    const Tensor& x = x_.get(name_);
    const Tensor& y = y_.get(name_);
    GradTarget dx = ctx.target(0);
    backend_of(dy).unary_backward(op_, x, y, dy, a_, b_, dx.tensor, dx.mode);
  }
  void release() noexcept override {
    x_.reset();
    y_.reset();
  }
  Tensor relu_mask(int) const override { return op_ == UnaryOp::relu ? y_.get(name_) : Tensor(); }

 private:
  const char* name_;
  UnaryOp op_;
  double a_, b_;
  SavedTensor x_, y_;
};

Variable apply(const char* name, UnaryOp op, const Variable& x, double a = 0, double b = 0) {
  check_float(name, "x", x.data());
  Tensor y = Tensor::empty_like(x.data());
  backend_of(y).unary(op, x.data(), a, b, y);
  if (!needs_graph({&x})) return y;
  auto node = std::make_shared<UnaryNode>(name, op, a, b);
  node->save(x.data(), y);
  return make_result(std::move(y), std::move(node), {&x});
}

}  // namespace

Variable neg(const Variable& x) { return apply("neg", UnaryOp::neg, x); }
Variable abs(const Variable& x) { return apply("abs", UnaryOp::abs, x); }
Variable exp(const Variable& x) { return apply("exp", UnaryOp::exp, x); }
Variable log(const Variable& x) { return apply("log", UnaryOp::log, x); }
Variable sqrt(const Variable& x) { return apply("sqrt", UnaryOp::sqrt, x); }
Variable relu(const Variable& x) { return apply("relu", UnaryOp::relu, x); }
Variable sigmoid(const Variable& x) { return apply("sigmoid", UnaryOp::sigmoid, x); }
Variable tanh(const Variable& x) { return apply("tanh", UnaryOp::tanh, x); }
Variable gelu(const Variable& x) { return apply("gelu", UnaryOp::gelu, x); }

Variable clamp(const Variable& x, double low, double high) {
  HEDDLE_CHECK(low <= high, "clamp: low is ", low, ", high is ", high, "; low <= high is needed");
  return apply("clamp", UnaryOp::clamp, x, low, high);
}

Variable pow(const Variable& a, double exponent) { return apply("pow", UnaryOp::pow_scalar, a, exponent); }

Variable add(const Variable& a, double b) {
  if (!is_floating(a.dtype())) return add(a, scalar_like("add", b, a.data()));
  return apply("add", UnaryOp::add_scalar, a, b);
}

Variable sub(const Variable& a, double b) {
  if (!is_floating(a.dtype())) return sub(a, scalar_like("sub", b, a.data()));
  return apply("sub", UnaryOp::add_scalar, a, -b);
}

Variable mul(const Variable& a, double b) {
  if (!is_floating(a.dtype())) return mul(a, scalar_like("mul", b, a.data()));
  return apply("mul", UnaryOp::mul_scalar, a, b);
}

Variable div(const Variable& a, double b) {
  check_float("div", "a", a.data());
  // A power of two divides exactly by multiplying; other values need the division to be rounded once.
  int exponent = 0;
  if (std::abs(std::frexp(b, &exponent)) == 0.5 && std::abs(exponent) < 100)
    return apply("div", UnaryOp::mul_scalar, a, 1 / b);
  return div(a, scalar_like("div", b, a.data()));
}

}  // namespace heddle::ops
