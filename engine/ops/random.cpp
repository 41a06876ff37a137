// Random tensors and dropout.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class DropoutNode final : public Node {
 public:
  DropoutNode(double p, const RandomStream& random) : p_(p), random_(random) {}
  const char* name() const noexcept override { return "dropout"; }
  // dx = dy keep / (1 - p): the same stream drops the same elements.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    GradTarget dx = ctx.target(0);
    backend_of(dy).dropout(dy, p_, random_, dx.tensor, dx.mode);
  }
  void release() noexcept override {}

 private:
  double p_;
  RandomStream random_;
};

Tensor empty_random(const char* op, const Shape& shape, const RandomOptions& options) {
  HEDDLE_CHECK(is_floating(options.dtype), op, ": a result of ", options.dtype,
               " is asked for, f32, f64 or bf16 is needed; shape ", shape);
  return Tensor::empty(shape, options.dtype, options.device);
}

}  // namespace

Tensor rand(const Shape& shape, const RandomOptions& options) {
  Tensor y = empty_random("rand", shape, options);
  backend_of(y).random_uniform(0.0, 1.0, options.random, y);
  return y;
}

Tensor randn(const Shape& shape, const RandomOptions& options) {
  Tensor y = empty_random("randn", shape, options);
  backend_of(y).random_normal(0.0, 1.0, options.random, y);
  return y;
}

Variable dropout(const Variable& x, double p, const RandomStream& random) {
  check_float("dropout", "x", x.data());
  HEDDLE_CHECK(p >= 0.0 && p < 1.0, "dropout: p is ", p, ", needs 0 <= p < 1; x ", x.shape());
  if (p == 0.0) return x;
  Tensor y = Tensor::empty_like(x.data());
  backend_of(y).dropout(x.data(), p, random, y, WriteMode::store);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<DropoutNode>(p, random), {&x});
}

}  // namespace heddle::ops
