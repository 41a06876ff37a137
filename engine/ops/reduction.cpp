// Sums, means, maxima.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class SumNode final : public Node {
 public:
  SumNode(const char* name, double scale, const Shape& kept) : name_(name), scale_(scale), kept_(kept) {}
  const char* name() const noexcept override { return name_; }
  // Every reduced element gets dy, times 1/count for the mean.
  void backward(BackwardContext& ctx) override {
    Tensor dy = ctx.grad_output().reshape(kept_);
    if (scale_ != 1.0) {
      Tensor scaled = Tensor::empty_like(dy);
      backend_of(dy).unary(UnaryOp::mul_scalar, dy, scale_, 0, scaled);
      dy = scaled;
    }
    give_expanded(ctx, *this, 0, dy);
  }
  void release() noexcept override {}

 private:
  const char* name_;
  double scale_;
  Shape kept_;  // the result's shape with reduced dimensions as 1
};

Variable reduce(const char* name, ReduceKind kind, const Variable& x, std::uint32_t mask, bool keepdim) {
  check_float(name, "x", x.data());
  if (mask == 0) return x;
  const Shape kept = reduced_shape(x.shape(), mask, true);
  std::int64_t count = 1;
  for (int i = 0; i < x.shape().rank(); ++i) count *= (mask >> i & 1u) != 0 ? x.dim(i) : 1;
  HEDDLE_CHECK(kind != ReduceKind::mean || count > 0, name, " of no elements: x ", x.shape());
  Tensor y = Tensor::empty(reduced_shape(x.shape(), mask, keepdim), x.dtype(), x.device());
  if (x.numel() == 0) {
    y.fill_zero();
  } else {
    backend_of(y).reduce(kind, x.data(), mask, y, WriteMode::store);
  }
  if (!needs_graph({&x})) return y;
  const double scale = kind == ReduceKind::mean ? 1.0 / static_cast<double>(count) : 1.0;
  return make_result(y, std::make_shared<SumNode>(name, scale, kept), {&x});
}

class MaxNode final : public Node {
 public:
  MaxNode(const Tensor& index, int dim) : index_(index), dim_(dim) {}
  const char* name() const noexcept override { return "max"; }
  // dx at the index of the largest element is dy, else 0.
  void backward(BackwardContext& ctx) override {
    const Tensor& index = index_.get(name());
    GradTarget dx = ctx.target(0);
    prepare_to_add(dx);
    backend_of(index).scatter_add(ctx.grad_output().reshape(index.shape()), dim_, index, dx.tensor);
  }
  void release() noexcept override { index_.reset(); }

 private:
  SavedTensor index_;  // with the reduced dimension as 1
  int dim_;
};

// Index of the largest elements, with dim as 1.
Tensor index_of_max(const char* op, const Tensor& x, int dim) {
  check_float(op, "x", x);
  HEDDLE_CHECK(x.dim(dim) > 0, op, ": dimension ", dim, " of x ", x.shape(), " has no element");
  Tensor index = Tensor::empty(reduced_shape(x.shape(), 1u << dim, true), DType::i64, x.device());
  backend_of(x).argmax(x, dim, index);
  return index;
}

}  // namespace

Variable sum(const Variable& x) { return reduce("sum", ReduceKind::sum, x, all_dims_mask(x.shape().rank()), false); }
Variable mean(const Variable& x) { return reduce("mean", ReduceKind::mean, x, all_dims_mask(x.shape().rank()), false); }
Variable sum(const Variable& x, const std::vector<int>& dims, bool keepdim) {
  return reduce("sum", ReduceKind::sum, x, dims_mask("sum", x.data(), dims), keepdim);
}
Variable mean(const Variable& x, const std::vector<int>& dims, bool keepdim) {
  return reduce("mean", ReduceKind::mean, x, dims_mask("mean", x.data(), dims), keepdim);
}

MaxResult max(const Variable& x, int dim, bool keepdim) {
  const int along = check_dim("max", x.data(), dim);
  const Tensor index = index_of_max("max", x.data(), along);
  const Shape shape = reduced_shape(x.shape(), 1u << along, keepdim);
  Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  backend_of(y).gather(x.data(), along, index, y);
  y = y.reshape(shape);
  // The caller's indices are a view: a change of them is noticed in the backward pass.
  MaxResult result{Variable(), index.reshape(shape)};
  if (needs_graph({&x})) {
    result.values = make_result(y, std::make_shared<MaxNode>(index, along), {&x});
  } else {
    result.values = y;
  }
  return result;
}

Variable max(const Variable& x) { return max(reshape(x, Shape{x.numel()}), 0).values; }

Tensor argmax(const Variable& x, int dim, bool keepdim) {
  const int along = check_dim("argmax", x.data(), dim);
  const Tensor index = index_of_max("argmax", x.data(), along);
  return index.reshape(reduced_shape(x.shape(), 1u << along, keepdim));
}

}  // namespace heddle::ops
