// Convolution, ReLU and pooling as one op: one pass where the backend has one, else the ops of the two steps.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

struct Names {
  const char* op;
  const char* pooling;  // in messages about the size of the window
};

Names names_of(PoolKind kind) {
  if (kind == PoolKind::max) return {"conv2d_relu_max_pool2d", "conv2d_relu_max_pool2d, output of the convolution"};
  return {"conv2d_relu_avg_pool2d", "conv2d_relu_avg_pool2d, output of the convolution"};
}

class Conv2dPoolNode final : public Node {
 public:
  Conv2dPoolNode(FusedConv2dPool& fused, const Variable& x, const Variable& w, const Variable& bias,
                 const Conv2dPoolParams& params, Tensor code)
      : fused_(fused), params_(params), has_bias_(bias.defined()), code_(std::move(code)) {
    if (w.requires_grad() || (has_bias_ && bias.requires_grad())) x_ = x.data();
    if (x.requires_grad()) w_ = w.data();
  }
  const char* name() const noexcept override { return names_of(params_.pool).op; }
  // With dz = dy at the elements that the code names (for an average a quarter of it, else 0): the gradients of conv2d
  // for dz, which is the gradient before the ReLU.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    if (ctx.needs_grad(0)) {
      const Tensor mask = ctx.take_relu_mask(0);
      GradTarget dx = ctx.target(0);
      fused_.backward_data(dy, code_, w_.get(name()), params_, mask, dx.tensor, dx.mode);
    }
    const auto write = [&](Tensor& dw, Tensor* db, WriteMode mode) {
      fused_.backward_weight(x_.get(name()), dy, code_, params_, dw, db, mode);
    };
    // dy is the pooled one: its sum is not the bias's gradient.
    write_weight_gradients(ctx, dy, has_bias_, write, [&](GradTarget& db) {
      const Edge& w = inputs()[1];
      Tensor unused = Tensor::zeros(w.shape, w.dtype, w.device);
      write(unused, &db.tensor, db.mode);
    });
  }
  void release() noexcept override {
    x_.reset();
    w_.reset();
    code_ = Tensor();
  }

 private:
  FusedConv2dPool& fused_;
  Conv2dPoolParams params_;
  bool has_bias_;
  Tensor code_;  // nobody else has it
  SavedTensor x_, w_;
};

}  // namespace

Variable conv2d_relu_pool2d(const Variable& x, const Variable& w, const Variable& bias, const Conv2dParams& params,
                            const Pooling2d& pooling) {
  const Names names = names_of(pooling.kind);
  const Tensor bias_data = bias.defined() ? bias.data() : Tensor();
  const Shape shape =
      pool2d_shape(names.pooling, conv2d_shape(names.op, x.data(), w.data(), bias_data, params), pooling.params);
  const Conv2dPoolParams both{params, pooling.kind};
  FusedConv2dPool* const fused =
      pools_2x2(pooling.params) ? backend_of(x.data()).fused_conv2d_pool(x.data(), w.data(), both) : nullptr;
  if (fused == nullptr) {
    if (pooling.kind == PoolKind::max) return relu_max_pool2d(conv2d(x, w, bias, params), pooling.params);
    return avg_pool2d(conv2d_relu(x, w, bias, params), pooling.params);
  }
  const bool record = needs_graph({&x, &w, &bias});
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  Tensor code = record ? Tensor::empty(shape, DType::u8, x.device()) : Tensor();
  fused->forward(x.data(), w.data(), bias_data, both, y, code);
  if (!record) return y;
  auto node = std::make_shared<Conv2dPoolNode>(*fused, x, w, bias, both, std::move(code));
  return make_result(std::move(y), std::move(node), {&x, &w, &bias});
}

}  // namespace heddle::ops
