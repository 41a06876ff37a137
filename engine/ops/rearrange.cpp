// Ops that move elements or only rename their positions: reshape, permute, concat, narrow.
#include <algorithm>
#include <numeric>

#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class ReshapeNode final : public Node {
 public:
  const char* name() const noexcept override { return "reshape"; }
  // dx is dy in x's shape.
  void backward(BackwardContext& ctx) override { ctx.give(0, ctx.grad_output()); }
  void release() noexcept override {}
};

class PermuteNode final : public Node {
 public:
  explicit PermuteNode(const std::vector<int>& perm) : inverse_(perm.size()) {
    for (std::size_t i = 0; i < perm.size(); ++i) inverse_[static_cast<std::size_t>(perm[i])] = static_cast<int>(i);
  }
  const char* name() const noexcept override { return "permute"; }
  // dx is dy with the dimensions back in place.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    write_gradient(ctx, *this, 0, inputs()[0].shape, [&](Tensor& out) { backend_of(dy).permute(dy, inverse_, out); });
  }
  void release() noexcept override {}

 private:
  std::vector<int> inverse_;
};

class ConcatNode final : public Node {
 public:
  explicit ConcatNode(int dim) : dim_(dim) {}
  const char* name() const noexcept override { return "concat"; }
  // Each input gets its part of dy.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < inputs().size(); ++i) {
      const std::int64_t n = inputs()[i].shape[dim_];
      if (ctx.needs_grad(static_cast<int>(i))) {
        GradTarget dx = ctx.target(static_cast<int>(i));
        backend_of(dy).copy_range(dy, begin, dx.tensor, 0, dim_, n, dx.mode);
      }
      begin += n;
    }
  }
  void release() noexcept override {}

 private:
  int dim_;
};

class NarrowNode final : public Node {
 public:
  NarrowNode(int dim, std::int64_t begin, std::int64_t n) : dim_(dim), begin_(begin), n_(n) {}
  const char* name() const noexcept override { return "narrow"; }
  // The chosen part of x gets dy, the rest 0.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    GradTarget dx = ctx.target(0);
    prepare_to_add(dx);
    backend_of(dy).copy_range(dy, 0, dx.tensor, begin_, dim_, n_, WriteMode::add);
  }
  void release() noexcept override {}

 private:
  int dim_;
  std::int64_t begin_, n_;
};

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  Tensor y = x.data().reshape(shape);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<ReshapeNode>(), {&x});
}

Variable reshape(const Variable& x, std::initializer_list<std::int64_t> dims) {
  std::vector<std::int64_t> resolved(dims);
  const auto unknown = std::find(resolved.begin(), resolved.end(), -1);
  if (unknown != resolved.end()) {
    *unknown = 1;
    HEDDLE_CHECK(std::find(resolved.begin(), resolved.end(), -1) == resolved.end(),
                 "reshape: two dimensions are -1; x ", x.shape());
    const std::int64_t known = Shape(resolved).numel();
    HEDDLE_CHECK(known > 0 && x.numel() % known == 0, "reshape: x ", x.shape(), " has ", x.numel(),
                 " elements, which the other dimensions' ", known, " do not divide");
    *unknown = x.numel() / known;
  }
  return reshape(x, Shape(resolved));
}

Variable flatten(const Variable& x, int begin_dim, int end_dim) {
  const int begin = check_dim("flatten", x.data(), begin_dim), end = check_dim("flatten", x.data(), end_dim);
  HEDDLE_CHECK(begin <= end, "flatten: begin_dim ", begin_dim, " is behind end_dim ", end_dim, " of x ", x.shape());
  std::vector<std::int64_t> dims;
  for (int i = 0; i < begin; ++i) dims.push_back(x.dim(i));
  dims.push_back(x.shape().numel_between(begin, end + 1));
  for (int i = end + 1; i < x.shape().rank(); ++i) dims.push_back(x.dim(i));
  return reshape(x, Shape(dims));
}

Variable permute(const Variable& x, const std::vector<int>& perm) {
  check_defined("permute", "x", x.data());
  HEDDLE_CHECK(static_cast<int>(perm.size()) == x.shape().rank(), "permute: x ", x.shape(), " has ", x.shape().rank(),
               " dimensions, ", perm.size(), " are given");
  dims_mask("permute", x.data(), perm);
  std::vector<int> order;
  std::vector<std::int64_t> dims;
  for (const int dim : perm) {
    order.push_back(x.shape().normalize_dim(dim));
    dims.push_back(x.dim(dim));
  }
  Tensor y = Tensor::empty(Shape(dims), x.dtype(), x.device());
  backend_of(y).permute(x.data(), order, y);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<PermuteNode>(order), {&x});
}

Variable transpose(const Variable& x, int dim0, int dim1) {
  std::vector<int> perm(static_cast<std::size_t>(x.shape().rank()));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<std::size_t>(check_dim("transpose", x.data(), dim0))],
            perm[static_cast<std::size_t>(check_dim("transpose", x.data(), dim1))]);
  return permute(x, perm);
}

Variable concat(const std::vector<Variable>& inputs, int dim) {
  std::vector<Tensor> parts;
  parts.reserve(inputs.size());
  for (const Variable& input : inputs) parts.push_back(input.data());
  Tensor y;
  const Shape shape = concat_shape(parts, dim);
  const int along = shape.normalize_dim(dim);
  y = Tensor::empty(shape, parts.front().dtype(), parts.front().device());
  std::int64_t begin = 0;
  for (const Tensor& part : parts) {
    backend_of(y).copy_range(part, 0, y, begin, along, part.dim(along), WriteMode::store);
    begin += part.dim(along);
  }
  if (!needs_graph(inputs)) return y;
  return make_result(y, std::make_shared<ConcatNode>(along), inputs);
}

Variable narrow(const Variable& x, int dim, std::int64_t begin, std::int64_t n) {
  const int along = check_dim("narrow", x.data(), dim);
  const std::int64_t size = x.dim(along);
  HEDDLE_CHECK(begin >= 0 && n >= 0 && begin <= size && n <= size - begin, "narrow: entries [", begin, ", ", begin, "+",
               n, ") of dimension ", along, " are out of range for x ", x.shape());
  Tensor y;
  if (along == 0) {
    y = x.data().narrow(begin, n);
  } else {
    std::vector<std::int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
    dims[static_cast<std::size_t>(along)] = n;
    y = Tensor::empty(Shape(dims), x.dtype(), x.device());
    backend_of(y).copy_range(x.data(), begin, y, 0, along, n, WriteMode::store);
  }
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<NarrowNode>(along, begin, n), {&x});
}

}  // namespace heddle::ops
