// The fully connected layer, with bias and ReLU in the same pass.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

// (..,K) as (rows,K).
Tensor as_rows(const Tensor& x) {
  return x.defined() ? x.reshape(Shape{x.shape().numel_between(0, x.rank() - 1), x.dim(-1)}) : Tensor();
}

class LinearNode final : public Node {
 public:
  // relu_output: y with ReLU, else undefined.
  LinearNode(const Variable& x, const Variable& w, bool has_bias, const Tensor& relu_output)
      : has_bias_(has_bias), relu_(relu_output.defined()), y_(relu_output) {
    if (w.requires_grad()) x_ = x.data();
    if (x.requires_grad()) w_ = w.data();
  }
  const char* name() const noexcept override { return relu_ ? "linear_relu" : "linear"; }
  // y = x w^T + b: dx = dy w; dw = dy^T x; db = sum of dy over rows. With ReLU dy counts only where y > 0.
  void backward(BackwardContext& ctx) override {
    const Tensor dy = as_rows(relu_ ? grad_before_relu(ctx, y_.get(name())) : ctx.grad_output());
    Backend& backend = backend_of(dy);
    if (ctx.needs_grad(0)) {
      const Tensor mask = as_rows(ctx.take_relu_mask(0));
      GradTarget dx = ctx.target(0);
      Tensor rows = as_rows(dx.tensor);
      backend.linear_backward_data(dy, w_.get(name()), mask, rows, dx.mode);
    }
    // Of a bias whose gradient is known to be 0 nothing is written.
    const bool bias = has_bias_ && (relu_ || !ctx.grad_output_sums_to_zero());
    write_weight_gradients(ctx, dy, bias, [&](Tensor& dw, Tensor* db, WriteMode mode) {
      backend.linear_backward_weight(as_rows(x_.get(name())), dy, dw, db, mode);
    });
  }
  void release() noexcept override {
    x_.reset();
    w_.reset();
    y_.reset();
  }
  Tensor relu_mask(int) const override { return y_.get(name()); }

 private:
  bool has_bias_;
  bool relu_;
  SavedTensor x_, w_, y_;  // y only with ReLU
};

Variable apply(const char* op, const Variable& x, const Variable& w, const Variable& bias, bool relu) {
  const Tensor bias_data = bias.defined() ? bias.data() : Tensor();
  Tensor y = Tensor::empty(linear_shape(op, x.data(), w.data(), bias_data), x.dtype(), x.device());
  Tensor rows = as_rows(y);
  backend_of(y).linear_forward(as_rows(x.data()), w.data(), bias_data, relu, rows);
  if (!needs_graph({&x, &w, &bias})) return y;
  auto node = std::make_shared<LinearNode>(x, w, bias.defined(), relu ? y : Tensor());
  return make_result(std::move(y), std::move(node), {&x, &w, &bias});
}

}  // namespace

Variable linear(const Variable& x, const Variable& w, const Variable& bias) {
  return apply("linear", x, w, bias, false);
}

Variable linear_relu(const Variable& x, const Variable& w, const Variable& bias) {
  return apply("linear_relu", x, w, bias, true);
}

}  // namespace heddle::ops
