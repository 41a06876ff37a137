// Matrix products, one or many.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

// (..,M,K) as (B,M,K).
Tensor as_batch(const Tensor& x) {
  return x.rank() == 2 ? x : x.reshape(Shape{x.shape().numel_between(0, x.rank() - 2), x.dim(-2), x.dim(-1)});
}

class MatmulNode final : public Node {
 public:
  MatmulNode(const Variable& a, const Variable& b, const MatmulParams& params) : params_(params) {
    if (a.requires_grad()) b_ = b.data();
    if (b.requires_grad()) a_ = a.data();
  }
  const char* name() const noexcept override { return "matmul"; }
  // Y = A B: dA = dY B^T, dB = A^T dY. With A = op(a): da = dA, or dA^T = B dY^T if a is used transposed; likewise b.
  void backward(BackwardContext& ctx) override {
    const Tensor dy = as_batch(ctx.grad_output());
    const bool ta = params_.transpose_a, tb = params_.transpose_b;
    if (ctx.needs_grad(0)) {
      const Tensor b = as_batch(b_.get(name()));
      if (ta) {
        write(ctx, 0, b, dy, {.transpose_a = tb, .transpose_b = true});
      } else {
        write(ctx, 0, dy, b, {.transpose_a = false, .transpose_b = !tb});
      }
    }
    if (ctx.needs_grad(1)) {
      const Tensor a = as_batch(a_.get(name()));
      if (tb) {
        write(ctx, 1, dy, a, {.transpose_a = true, .transpose_b = ta});
      } else {
        write(ctx, 1, a, dy, {.transpose_a = !ta, .transpose_b = false});
      }
    }
  }
  void release() noexcept override {
    a_.reset();
    b_.reset();
  }

 private:
  void write(BackwardContext& ctx, int input, const Tensor& left, const Tensor& right, const MatmulParams& params) {
    GradTarget target = ctx.target(input);
    Tensor out = as_batch(target.tensor);
    backend_of(out).matmul(left, right, params, out, target.mode);
  }
  MatmulParams params_;
  SavedTensor a_, b_;
};

}  // namespace

Variable matmul(const Variable& a, const Variable& b, const MatmulParams& params) {
  const Shape shape = matmul_shape(a.data(), b.data(), params);
  if (a.shape().rank() > 2 && b.shape().rank() == 2) {
    // One b for all: the rows of all matrices are rows of one.
    const Variable rows = reshape(a, Shape{a.shape().numel_between(0, a.shape().rank() - 1), a.dim(-1)});
    return reshape(matmul(rows, b, params), shape);
  }
  Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  Tensor batch = as_batch(y);
  backend_of(y).matmul(as_batch(a.data()), as_batch(b.data()), params, batch, WriteMode::store);
  if (!needs_graph({&a, &b})) return y;
  return make_result(y, std::make_shared<MatmulNode>(a, b, params), {&a, &b});
}

}  // namespace heddle::ops
