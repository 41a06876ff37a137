// Element-wise ops with two operands and broadcasting.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

// Checked operands to a fresh result.
Tensor compute(const char* op, BinaryOp kind, const Tensor& a, const Tensor& b) {
  check_same_dtype(op, "a", a, "b", b);
  const Shape shape = broadcast_shape(op, a.shape(), b.shape());
  Tensor y = Tensor::empty(shape, is_comparison(kind) ? DType::u8 : a.dtype(), a.device());
  backend_of(a).binary(kind, a, b, y);
  return y;
}

class AddNode final : public Node {
 public:
  explicit AddNode(bool subtract) : subtract_(subtract) {}
  const char* name() const noexcept override { return subtract_ ? "sub" : "add"; }
  // da = dy; db = dy, or -dy for a - b.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    if (ctx.needs_grad(0)) give_reduced(ctx, *this, 0, dy);
    if (!ctx.needs_grad(1)) return;
    if (!subtract_) return give_reduced(ctx, *this, 1, dy);
    write_gradient(ctx, *this, 1, dy.shape(), [&](Tensor& out) { backend_of(dy).unary(UnaryOp::neg, dy, 0, 0, out); });
  }
  void release() noexcept override {}

 private:
  bool subtract_;
};

class MulNode final : public Node {
 public:
  MulNode(const Variable& a, const Variable& b) {
    if (a.requires_grad()) b_ = b.data();
    if (b.requires_grad()) a_ = a.data();
  }
  const char* name() const noexcept override { return "mul"; }
  // da = dy b; db = dy a.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    if (ctx.needs_grad(0)) write_product(ctx, 0, dy, b_.get(name()));
    if (ctx.needs_grad(1)) write_product(ctx, 1, dy, a_.get(name()));
  }
  void release() noexcept override {
    a_.reset();
    b_.reset();
  }

 private:
  void write_product(BackwardContext& ctx, int input, const Tensor& dy, const Tensor& factor) {
    write_gradient(ctx, *this, input, dy.shape(),
                   [&](Tensor& out) { backend_of(dy).binary(BinaryOp::mul, dy, factor, out); });
  }
  SavedTensor a_, b_;
};

class DivNode final : public Node {
 public:
  DivNode(const Variable& b, const Tensor& y) : b_(b.data()) {
    if (b.requires_grad()) y_ = y;
  }
  const char* name() const noexcept override { return "div"; }
  // y = a / b: da = dy / b; db = -dy a / b^2 = -(dy / b) y.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    const Tensor& b = b_.get(name());
    Backend& backend = backend_of(dy);
    if (ctx.needs_grad(0)) {
      write_gradient(ctx, *this, 0, dy.shape(), [&](Tensor& out) { backend.binary(BinaryOp::div, dy, b, out); });
    }
    if (!ctx.needs_grad(1)) return;
    const Tensor& y = y_.get(name());
    write_gradient(ctx, *this, 1, dy.shape(), [&](Tensor& out) {
      backend.binary(BinaryOp::div, dy, b, out);
      backend.binary(BinaryOp::mul, out, y, out);
      backend.unary(UnaryOp::neg, out, 0, 0, out);
    });
  }
  void release() noexcept override {
    b_.reset();
    y_.reset();
  }

 private:
  SavedTensor b_, y_;
};

class PowNode final : public Node {
 public:
  PowNode(const Variable& a, const Variable& b, const Tensor& y) : a_(a.data()) {
    if (a.requires_grad()) b_ = b.data();
    if (b.requires_grad()) y_ = y;
  }
  const char* name() const noexcept override { return "pow"; }
  // y = a^b: da = dy b a^(b-1), 0 where b is 0; db = dy y log(a), 0 where a is 0.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    const Tensor& a = a_.get(name());
    Backend& backend = backend_of(dy);
    const Tensor zero = scalar_like(name(), 0.0, dy);
    if (ctx.needs_grad(0)) {
      const Tensor& b = b_.get(name());
      Tensor exponent = Tensor::empty_like(b);
      backend.unary(UnaryOp::add_scalar, b, -1.0, 0, exponent);
      const Tensor constant = compute(name(), BinaryOp::eq, b, zero);
      write_gradient(ctx, *this, 0, dy.shape(), [&](Tensor& out) {
        backend.binary(BinaryOp::pow, a, exponent, out);
        backend.binary(BinaryOp::mul, out, b, out);
        backend.binary(BinaryOp::mul, out, dy, out);
        const Tensor slope = out.clone();
        backend.where(constant, zero, slope, out);
      });
    }
    if (ctx.needs_grad(1)) {
      const Tensor& y = y_.get(name());
      Tensor log_a = Tensor::empty_like(a);
      backend.unary(UnaryOp::log, a, 0, 0, log_a);
      const Tensor at_zero = compute(name(), BinaryOp::eq, a, zero);
      Tensor factor = Tensor::empty_like(a);
      backend.where(at_zero, zero, log_a, factor);
      write_gradient(ctx, *this, 1, dy.shape(), [&](Tensor& out) {
        backend.binary(BinaryOp::mul, y, factor, out);
        backend.binary(BinaryOp::mul, out, dy, out);
      });
    }
  }
  void release() noexcept override {
    a_.reset();
    b_.reset();
    y_.reset();
  }

 private:
  SavedTensor a_, b_, y_;
};

// maximum, minimum and where: every element of the result is one of a's or one of b's.
class SelectNode final : public Node {
 public:
  // from_a: u8, 1 where the result is a's element.
  SelectNode(const char* name, const Tensor& from_a) : name_(name), from_a_(from_a) {}
  const char* name() const noexcept override { return name_; }
  // da = dy where a was taken, else 0; db the rest.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    const Tensor& from_a = from_a_.get(name_);
    const Tensor zero = scalar_like(name_, 0.0, dy);
    for (const int input : {0, 1}) {
      if (!ctx.needs_grad(input)) continue;
      write_gradient(ctx, *this, input, dy.shape(), [&](Tensor& out) {
        backend_of(dy).where(from_a, input == 0 ? dy : zero, input == 0 ? zero : dy, out);
      });
    }
  }
  void release() noexcept override { from_a_.reset(); }

 private:
  const char* name_;
  SavedTensor from_a_;
};

Variable select_extreme(const char* op, BinaryOp kind, BinaryOp a_wins, const Variable& a, const Variable& b) {
  Tensor y = compute(op, kind, a.data(), b.data());
  if (!needs_graph({&a, &b})) return y;
  return make_result(y, std::make_shared<SelectNode>(op, compute(op, a_wins, a.data(), b.data())), {&a, &b});
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  Tensor y = compute("add", BinaryOp::add, a.data(), b.data());
  if (!needs_graph({&a, &b})) return y;
  return make_result(y, std::make_shared<AddNode>(false), {&a, &b});
}

Variable sub(const Variable& a, const Variable& b) {
  Tensor y = compute("sub", BinaryOp::sub, a.data(), b.data());
  if (!needs_graph({&a, &b})) return y;
  return make_result(y, std::make_shared<AddNode>(true), {&a, &b});
}

Variable mul(const Variable& a, const Variable& b) {
  Tensor y = compute("mul", BinaryOp::mul, a.data(), b.data());
  if (!needs_graph({&a, &b})) return y;
  return make_result(y, std::make_shared<MulNode>(a, b), {&a, &b});
}

Variable div(const Variable& a, const Variable& b) {
  check_float("div", "a", a.data());
  Tensor y = compute("div", BinaryOp::div, a.data(), b.data());
  if (!needs_graph({&a, &b})) return y;
  return make_result(y, std::make_shared<DivNode>(b, y), {&a, &b});
}

Variable pow(const Variable& a, const Variable& b) {
  check_float("pow", "a", a.data());
  Tensor y = compute("pow", BinaryOp::pow, a.data(), b.data());
  if (!needs_graph({&a, &b})) return y;
  return make_result(y, std::make_shared<PowNode>(a, b, y), {&a, &b});
}

Variable maximum(const Variable& a, const Variable& b) {
  return select_extreme("maximum", BinaryOp::maximum, BinaryOp::ge, a, b);
}

Variable minimum(const Variable& a, const Variable& b) {
  return select_extreme("minimum", BinaryOp::minimum, BinaryOp::le, a, b);
}

Variable where(const Variable& condition, const Variable& a, const Variable& b) {
  const Tensor& c = condition.data();
  check_dtype("where", "condition", c, DType::u8);
  check_same_dtype("where", "a", a.data(), "b", b.data());
  check_same_device("where", "condition", c, "a", a.data());
  const Shape branches = broadcast_shape("where", a.shape(), b.shape());
  const Shape shape = broadcast_shape("where", c.shape(), branches);
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  backend_of(y).where(c, a.data(), b.data(), y);
  if (!needs_graph({&a, &b})) return y;
  return make_result(y, std::make_shared<SelectNode>("where", c), {&a, &b});
}

Variable eq(const Variable& a, const Variable& b) { return compute("eq", BinaryOp::eq, a.data(), b.data()); }
Variable ne(const Variable& a, const Variable& b) { return compute("ne", BinaryOp::ne, a.data(), b.data()); }
Variable lt(const Variable& a, const Variable& b) { return compute("lt", BinaryOp::lt, a.data(), b.data()); }
Variable le(const Variable& a, const Variable& b) { return compute("le", BinaryOp::le, a.data(), b.data()); }
Variable gt(const Variable& a, const Variable& b) { return compute("gt", BinaryOp::gt, a.data(), b.data()); }
Variable ge(const Variable& a, const Variable& b) { return compute("ge", BinaryOp::ge, a.data(), b.data()); }

Variable eq(const Variable& a, double b) { return eq(a, scalar_like("eq", b, a.data())); }
Variable ne(const Variable& a, double b) { return ne(a, scalar_like("ne", b, a.data())); }
Variable lt(const Variable& a, double b) { return lt(a, scalar_like("lt", b, a.data())); }
Variable le(const Variable& a, double b) { return le(a, scalar_like("le", b, a.data())); }
Variable gt(const Variable& a, double b) { return gt(a, scalar_like("gt", b, a.data())); }
Variable ge(const Variable& a, double b) { return ge(a, scalar_like("ge", b, a.data())); }

Variable sub(double a, const Variable& b) { return sub(scalar_like("sub", a, b.data()), b); }
Variable div(double a, const Variable& b) { return div(scalar_like("div", a, b.data()), b); }
Variable maximum(const Variable& a, double b) { return maximum(a, scalar_like("maximum", b, a.data())); }
Variable minimum(const Variable& a, double b) { return minimum(a, scalar_like("minimum", b, a.data())); }

}  // namespace heddle::ops
