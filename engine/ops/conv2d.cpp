// Convolution, with bias and ReLU in the same pass.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class Conv2dNode final : public Node {
 public:
  // relu_output: y with ReLU, else undefined.
  Conv2dNode(const Variable& x, const Variable& w, bool has_bias, const Conv2dParams& params, const Tensor& relu_output)
      : params_(params), has_bias_(has_bias), relu_(relu_output.defined()), y_(relu_output) {
    if (w.requires_grad()) x_ = x.data();
    if (x.requires_grad()) w_ = w.data();
  }
  const char* name() const noexcept override { return relu_ ? "conv2d_relu" : "conv2d"; }
  // dx = dy correlated with the flipped weights; dw = x correlated with dy; db = sum of dy over images and positions.
  // With ReLU dy counts only where y > 0.
  void backward(BackwardContext& ctx) override {
    const Tensor dy = relu_ ? grad_before_relu(ctx, y_.get(name())) : ctx.grad_output();
    Backend& backend = backend_of(dy);
    if (ctx.needs_grad(0)) {
      const Tensor mask = ctx.take_relu_mask(0);
      GradTarget dx = ctx.target(0);
      backend.conv2d_backward_data(dy, w_.get(name()), params_, mask, dx.tensor, dx.mode);
    }
    // Of a bias whose gradient is known to be 0, or another leaf's, nothing is written.
    const bool is_known = has_bias_ && !relu_ && (ctx.grad_output_sums_to_zero() || ctx.give_column_sums(2));
    const bool bias = has_bias_ && !is_known;
    write_weight_gradients(ctx, dy, bias, [&](Tensor& dw, Tensor* db, WriteMode mode) {
      backend.conv2d_backward_weight(x_.get(name()), dy, params_, dw, db, mode);
    });
  }
  void release() noexcept override {
    x_.reset();
    w_.reset();
    y_.reset();
  }
  Tensor relu_mask(int) const override { return y_.get(name()); }

 private:
  Conv2dParams params_;
  bool has_bias_;
  bool relu_;
  SavedTensor x_, w_, y_;  // y only with ReLU
};

Variable convolve(const char* op, const Variable& x, const Variable& w, const Variable& bias,
                  const Conv2dParams& params, bool relu) {
  const Tensor bias_data = bias.defined() ? bias.data() : Tensor();
  const Shape shape = conv2d_shape(op, x.data(), w.data(), bias_data, params);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  backend_of(y).conv2d_forward(x.data(), w.data(), bias_data, params, relu, y);
  if (!needs_graph({&x, &w, &bias})) return y;
  auto node = std::make_shared<Conv2dNode>(x, w, bias.defined(), params, relu ? y : Tensor());
  return make_result(std::move(y), std::move(node), {&x, &w, &bias});
}

}  // namespace

Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const Conv2dParams& params) {
  return convolve("conv2d", x, w, bias, params, false);
}

Variable conv2d_relu(const Variable& x, const Variable& w, const Variable& bias, const Conv2dParams& params) {
  return convolve("conv2d_relu", x, w, bias, params, true);
}

}  // namespace heddle::ops
