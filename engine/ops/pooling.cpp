// Pooling over windows of images.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class MaxPool2dNode final : public Node {
 public:
  // relu_output: y with ReLU, else undefined.
  MaxPool2dNode(const char* name, const Pool2dParams& params, Tensor argmax, const Tensor& relu_output)
      : name_(name), params_(params), argmax_(std::move(argmax)), y_(relu_output) {}
  const char* name() const noexcept override { return name_; }
  // The largest element of a window gets the window's dy; with ReLU only where y > 0. Windows that overlap add up.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    const Tensor& y = y_.get(name_);
    GradTarget dx = ctx.target(0);
    backend_of(dy).max_pool2d_backward(dy, y, argmax_, params_, dx.tensor, dx.mode);
  }
  void release() noexcept override {
    argmax_ = Tensor();
    y_.reset();
  }

 private:
  const char* name_;
  Pool2dParams params_;
  Tensor argmax_;  // nobody else has it
  SavedTensor y_;  // only with ReLU
};

class AvgPool2dNode final : public Node {
 public:
  explicit AvgPool2dNode(const Pool2dParams& params) : params_(params) {}
  const char* name() const noexcept override { return "avg_pool2d"; }
  // Every element of a window gets the window's dy over the number of elements. Windows that overlap add up.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    const Tensor mask = ctx.take_relu_mask(0);
    GradTarget dx = ctx.target(0);
    backend_of(dy).avg_pool2d_backward(dy, params_, mask, dx.tensor, dx.mode);
  }
  void release() noexcept override {}

 private:
  Pool2dParams params_;
};

class AdaptivePool2dNode final : public Node {
 public:
  AdaptivePool2dNode(PoolKind kind, Tensor argmax) : kind_(kind), argmax_(std::move(argmax)) {}
  const char* name() const noexcept override {
    return kind_ == PoolKind::max ? "adaptive_max_pool2d" : "adaptive_avg_pool2d";
  }
  // As max_pool2d and avg_pool2d.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    GradTarget dx = ctx.target(0);
    backend_of(dy).adaptive_pool2d_backward(kind_, dy, argmax_, dx.tensor, dx.mode);
  }
  void release() noexcept override { argmax_ = Tensor(); }

 private:
  PoolKind kind_;
  Tensor argmax_;  // max only; nobody else has it
};

Variable max_pool(const char* op, const Variable& x, const Pool2dParams& params, bool relu) {
  const Shape shape = pool2d_shape(op, x.data(), params);
  const bool record = needs_graph({&x});
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const bool small_window = params.kernel_h <= 255 && params.kernel_w <= 255 / params.kernel_h;
  Tensor argmax = record ? Tensor::empty(shape, small_window ? DType::u8 : DType::i32, x.device()) : Tensor();
  backend_of(y).max_pool2d_forward(x.data(), params, relu, y, argmax);
  if (!record) return y;
  auto node = std::make_shared<MaxPool2dNode>(op, params, std::move(argmax), relu ? y : Tensor());
  return make_result(std::move(y), std::move(node), {&x});
}

Variable adaptive_pool(const char* op, PoolKind kind, const Variable& x, std::int64_t out_h, std::int64_t out_w) {
  const Shape shape = adaptive_pool2d_shape(op, x.data(), out_h, out_w);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  Tensor argmax = kind == PoolKind::max ? Tensor::empty(shape, DType::i32, x.device()) : Tensor();
  backend_of(y).adaptive_pool2d_forward(kind, x.data(), y, argmax);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<AdaptivePool2dNode>(kind, std::move(argmax)), {&x});
}

}  // namespace

Variable max_pool2d(const Variable& x, const Pool2dParams& params) { return max_pool("max_pool2d", x, params, false); }

Variable relu_max_pool2d(const Variable& x, const Pool2dParams& params) {
  return max_pool("relu_max_pool2d", x, params, true);
}

Variable avg_pool2d(const Variable& x, const Pool2dParams& params) {
  Tensor y = Tensor::empty(pool2d_shape("avg_pool2d", x.data(), params), x.dtype(), x.device());
  backend_of(y).avg_pool2d_forward(x.data(), params, y);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<AvgPool2dNode>(params), {&x});
}

Variable adaptive_avg_pool2d(const Variable& x, std::int64_t out_h, std::int64_t out_w) {
  return adaptive_pool("adaptive_avg_pool2d", PoolKind::avg, x, out_h, out_w);
}

Variable adaptive_max_pool2d(const Variable& x, std::int64_t out_h, std::int64_t out_w) {
  return adaptive_pool("adaptive_max_pool2d", PoolKind::max, x, out_h, out_w);
}

}  // namespace heddle::ops
