// Changes of dtype and device.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class CastNode final : public Node {
 public:
  const char* name() const noexcept override { return "to(dtype)"; }
  // dx is dy converted back.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    write_gradient(ctx, *this, 0, dy.shape(), [&](Tensor& out) { backend_of(dy).cast(dy, out); });
  }
  void release() noexcept override {}
};

class ToDeviceNode final : public Node {
 public:
  const char* name() const noexcept override { return "to(device)"; }
  // dx is dy copied back.
  void backward(BackwardContext& ctx) override { ctx.give(0, ctx.grad_output().to(inputs()[0].device)); }
  void release() noexcept override {}
};

}  // namespace

Variable to(const Variable& x, DType dtype) {
  check_defined("to", "x", x.data());
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  backend_of(y).cast(x.data(), y);
  if (!is_floating(dtype) || !needs_graph({&x})) return y;
  return make_result(y, std::make_shared<CastNode>(), {&x});
}

Variable to(const Variable& x, Device device) {
  check_defined("to", "x", x.data());
  if (x.device() == device) return x;
  Tensor y = x.data().to(device);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<ToDeviceNode>(), {&x});
}

}  // namespace heddle::ops
