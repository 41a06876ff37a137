// Ops that pick elements by index tensors.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class IndexSelectNode final : public Node {
 public:
  explicit IndexSelectNode(const Tensor& index) : index_(index) {}
  const char* name() const noexcept override { return "index_select"; }
  // dx[index[j]] gets dy[j]; repeated indices add up.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    GradTarget dx = ctx.target(0);
    prepare_to_add(dx);
    backend_of(dy).index_add(dy, index_.get(name()), dx.tensor);
  }
  void release() noexcept override { index_.reset(); }

 private:
  SavedTensor index_;
};

class GatherNode final : public Node {
 public:
  GatherNode(const Tensor& index, int dim) : index_(index), dim_(dim) {}
  const char* name() const noexcept override { return "gather"; }
  // dx[i][index[i][j]] gets dy[i][j]; repeated indices add up.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    GradTarget dx = ctx.target(0);
    prepare_to_add(dx);
    backend_of(dy).scatter_add(dy, dim_, index_.get(name()), dx.tensor);
  }
  void release() noexcept override { index_.reset(); }

 private:
  SavedTensor index_;
  int dim_;
};

}  // namespace

Variable index_select(const Variable& x, const Tensor& index, int dim) {
  const int along = check_dim("index_select", x.data(), dim);
  check_rank("index_select", "index", index, 1);
  check_same_device("index_select", "x", x.data(), "index", index);
  check_index_values("index_select", "index", index, x.dim(along));
  if (along != 0) return transpose(index_select(transpose(x, 0, along), index, 0), 0, along);
  std::vector<std::int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  dims[0] = index.dim(0);
  Tensor y = Tensor::empty(Shape(dims), x.dtype(), x.device());
  backend_of(y).index_select(x.data(), index, y);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<IndexSelectNode>(index), {&x});
}

Variable gather(const Variable& x, int dim, const Tensor& index) {
  const int along = check_dim("gather", x.data(), dim);
  check_dtype("gather", "index", index, DType::i64);
  check_same_device("gather", "x", x.data(), "index", index);
  bool fits = index.rank() == x.shape().rank();
  for (int i = 0; fits && i < index.rank(); ++i) fits = i == along || index.dim(i) == x.dim(i);
  HEDDLE_CHECK(fits, "gather along dimension ", along, ": x is ", x.shape(), ", index is ", index.shape(),
               "; they may differ in that dimension only");
  check_index_values("gather", "index", index, x.dim(along));
  Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  backend_of(y).gather(x.data(), along, index, y);
  if (!needs_graph({&x})) return y;
  return make_result(y, std::make_shared<GatherNode>(index, along), {&x});
}

Tensor one_hot(const Tensor& labels, std::int64_t num_classes, DType dtype) {
  HEDDLE_CHECK(num_classes >= 1, "one_hot: num_classes is ", num_classes, ", at least 1 is needed");
  HEDDLE_CHECK(is_floating(dtype), "one_hot: a result of ", dtype, " is asked for, f32, f64 or bf16 is needed");
  check_index_values("one_hot", "labels", labels, num_classes);
  const std::int64_t n = labels.numel();
  Tensor ones = Tensor::empty({n, 1}, dtype, labels.device());
  backend_of(labels).fill(ones, 1.0);
  Tensor y = Tensor::zeros({n, num_classes}, dtype, labels.device());
  backend_of(labels).scatter_add(ones, 1, labels.reshape(Shape{n, 1}), y);
  std::vector<std::int64_t> dims(labels.shape().dims().begin(), labels.shape().dims().end());
  dims.push_back(num_classes);
  return y.reshape(Shape(dims));
}

}  // namespace heddle::ops
