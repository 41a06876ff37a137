// Losses.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

// x in another dtype; x itself if it has it.
Tensor converted(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  backend_of(x).cast(x, y);
  return y;
}

class CrossEntropyNode final : public Node {
 public:
  // gradient: (N,K), of the sum of row losses. divisor: weight sum, shape (), for the mean; else undefined.
  CrossEntropyNode(Tensor gradient, Tensor divisor, Reduction reduction)
      : gradient_(std::move(gradient)), divisor_(std::move(divisor)), reduction_(reduction) {}
  const char* name() const noexcept override { return "cross_entropy"; }
  // With row losses l_n and p = softmax(logits): dl_n/dlogits_nk = w_n ((1-e) (p_k - [k is the label]) + e (p_k - 1/K))
  // for equal class weights, times the row's dy; the mean divides by the weight sum.
  void backward(BackwardContext& ctx) override {
    if (reduction_ == Reduction::sum && ctx.grad_output_is_one()) return ctx.give(0, gradient_);
    Tensor scale = ctx.grad_output();
    if (reduction_ == Reduction::none) scale = scale.reshape(Shape{gradient_.dim(0), 1});
    if (divisor_.defined()) {
      Tensor divided = Tensor::empty_like(scale);
      backend_of(scale).binary(BinaryOp::div, scale, divisor_, divided);
      scale = divided;
    }
    // With bf16 logits the factor stays f32: rounded, it would bend all gradients the same way.
    const Tensor factor = converted(gradient_, scale.dtype());
    Tensor product = Tensor::empty_like(factor);
    backend_of(scale).binary(BinaryOp::mul, factor, scale, product);
    ctx.give(0, converted(product, gradient_.dtype()));
  }
  void release() noexcept override {
    gradient_ = Tensor();
    divisor_ = Tensor();
  }

 private:
  Tensor gradient_, divisor_;  // nobody else has them, so they need no watch
  Reduction reduction_;
};

void check_cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  const char* op = "cross_entropy";
  check_float(op, "logits", logits);
  check_dtype(op, "labels", labels, DType::i64);
  check_same_device(op, "logits", logits, "labels", labels);
  bool fits = logits.rank() >= 1 && labels.rank() == logits.rank() - 1;
  for (int i = 0; fits && i < labels.rank(); ++i) fits = labels.dim(i) == logits.dim(i);
  HEDDLE_CHECK(fits, op, ": logits are ", logits.shape(), ", labels are ", labels.shape(),
               "; labels need the logits' shape without the last dimension (the classes)");
  const std::int64_t classes = logits.dim(-1);
  HEDDLE_CHECK(classes >= 1, op, ": logits ", logits.shape(), " have no class");
  HEDDLE_CHECK(options.label_smoothing >= 0.0 && options.label_smoothing < 1.0, op, ": label_smoothing is ",
               options.label_smoothing, ", needs 0 <= label_smoothing < 1");
  if (options.class_weight.defined()) {
    check_same_dtype(op, "logits", logits, "class_weight", options.class_weight);
    HEDDLE_CHECK(options.class_weight.shape() == Shape{classes}, op, ": logits ", logits.shape(), " have ", classes,
                 " classes, class_weight is ", options.class_weight.shape());
  }
  if (options.stats.defined()) {
    const Tensor& stats = options.stats.place();
    check_dtype(op, "stats", stats, DType::f32);
    check_same_device(op, "logits", logits, "stats", stats);
    HEDDLE_CHECK(stats.shape() == Shape{tail_slot::kCount}, op, ": stats are ", stats.shape(), ", ",
                 Shape{tail_slot::kCount}, " is needed");
  }
  check_index_values(op, "labels", labels, classes, &options.ignore_index);
}

class MseNode final : public Node {
 public:
  MseNode(Tensor difference, double scale) : difference_(std::move(difference)), scale_(scale) {}
  const char* name() const noexcept override { return "mse_loss"; }
  // dx = 2 (x - target) dy, over the count for the mean; dtarget = -dx.
  void backward(BackwardContext& ctx) override {
    const Tensor& dy = ctx.grad_output();
    Backend& backend = backend_of(dy);
    for (const int input : {0, 1}) {
      if (!ctx.needs_grad(input)) continue;
      write_gradient(ctx, *this, input, difference_.shape(), [&](Tensor& out) {
        backend.binary(BinaryOp::mul, difference_, dy, out);
        backend.unary(UnaryOp::mul_scalar, out, input == 0 ? scale_ : -scale_, 0, out);
      });
    }
  }
  void release() noexcept override { difference_ = Tensor(); }

 private:
  Tensor difference_;  // nobody else has it
  double scale_;
};

}  // namespace

Variable cross_entropy(const Variable& logits, const Tensor& labels, const CrossEntropyOptions& options) {
  check_cross_entropy(logits.data(), labels, options);
  const Device device = logits.device();
  Backend& backend = backend_for(device);
  const Shape rows{labels.numel(), logits.dim(-1)};
  const DType loss_dtype = logits.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const bool mean = options.reduction == Reduction::mean;

  const bool sums = options.reduction != Reduction::none;
  CrossEntropyResult result;
  if (sums) {
    result.loss = Tensor::empty({}, loss_dtype, device);
  } else {
    result.row_loss = Tensor::empty({labels.numel()}, loss_dtype, device);
  }
  if (needs_graph({&logits})) result.dlogits = Tensor::empty(rows, logits.dtype(), device);
  LossStats total = options.stats;
  if (mean) {
    // The mean needs this batch's own weight sum, while the caller's statistics may go on from earlier batches.
    result.stats = Tensor::empty({tail_slot::kCount}, DType::f32, device);
    result.stats_mode = WriteMode::store;
  } else if (total.defined()) {
    GradTarget target = total.target();
    result.stats = target.tensor;
    result.stats_mode = target.mode;
  }
  backend.cross_entropy(logits.data().reshape(rows), labels.reshape(Shape{labels.numel()}), options.class_weight,
                        {.label_smoothing = options.label_smoothing, .ignore_index = options.ignore_index}, result);

  Tensor y = sums ? result.loss : result.row_loss.reshape(labels.shape());
  const Tensor gradient = result.dlogits;
  Tensor divisor;
  if (mean) {
    if (total.defined()) backend.axpy(1.0, result.stats, total.tensor());
    divisor = converted(result.stats.narrow(tail_slot::kWeightSum, 1).reshape(Shape{}), loss_dtype);
    backend.binary(BinaryOp::div, y, divisor, y);
  }
  if (!gradient.defined()) return y;
  return make_result(y, std::make_shared<CrossEntropyNode>(gradient, divisor, options.reduction), {&logits});
}

Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction) {
  check_float("mse_loss", "x", x.data());
  check_same_dtype("mse_loss", "x", x.data(), "target", target.data());
  HEDDLE_CHECK(x.shape() == target.shape(), "mse_loss: x is ", x.shape(), ", target is ", target.shape());
  HEDDLE_CHECK(x.numel() > 0 || reduction != Reduction::mean, "mse_loss: mean of no elements: x ", x.shape());
  Backend& backend = backend_of(x.data());
  Tensor difference = Tensor::empty_like(x.data());
  backend.binary(BinaryOp::sub, x.data(), target.data(), difference);
  Tensor y = Tensor::empty_like(difference);
  backend.binary(BinaryOp::mul, difference, difference, y);
  if (reduction != Reduction::none) {
    const Tensor squares = y;
    y = Tensor::empty({}, x.dtype(), x.device());
    if (squares.numel() == 0) {
      y.fill_zero();
    } else {
      backend.reduce(reduction == Reduction::mean ? ReduceKind::mean : ReduceKind::sum, squares,
                     all_dims_mask(squares.rank()), y, WriteMode::store);
    }
  }
  if (!needs_graph({&x, &target})) return y;
  const double scale = reduction == Reduction::mean ? 2.0 / static_cast<double>(x.numel()) : 2.0;
  return make_result(y, std::make_shared<MseNode>(difference, scale), {&x, &target});
}

}  // namespace heddle::ops
