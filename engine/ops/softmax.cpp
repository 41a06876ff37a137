// Softmax and log-softmax.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class SoftmaxNode final : public Node {
 public:
  SoftmaxNode(bool log, const Tensor& y) : log_(log), y_(y) {}
  const char* name() const noexcept override { return log_ ? "log_softmax" : "softmax"; }
  // softmax: dx = y (dy - sum(dy y)); log-softmax: dx = dy - exp(y) sum(dy).
  void backward(BackwardContext& ctx) override {
    const Tensor& y = y_.get(name());
    GradTarget dx = ctx.target(0);
    backend_of(y).softmax_backward(y, ctx.grad_output(), log_, dx.tensor, dx.mode);
  }
  void release() noexcept override { y_.reset(); }

 private:
  bool log_;
  SavedTensor y_;
};

Variable softmax_along(const char* op, bool log, const Variable& x, int dim) {
  check_float(op, "x", x.data());
  const int along = check_dim(op, x.data(), dim);
  HEDDLE_CHECK(x.dim(along) > 0, op, ": dimension ", dim, " of x ", x.shape(), " has no element");
  if (along != x.shape().rank() - 1) {
    return transpose(softmax_along(op, log, transpose(x, along, -1), -1), along, -1);
  }
  Tensor y = Tensor::empty_like(x.data());
  backend_of(y).softmax_forward(x.data(), log, y);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<SoftmaxNode>(log, y), {&x});
}

}  // namespace

Variable softmax(const Variable& x, int dim) { return softmax_along("softmax", false, x, dim); }
Variable log_softmax(const Variable& x, int dim) { return softmax_along("log_softmax", true, x, dim); }

}  // namespace heddle::ops
