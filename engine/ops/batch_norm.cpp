// Batch norm, with an addend and ReLU in the same pass, and with the batch of all ranks.
#include "engine/ops/op_support.h"
#include "engine/ops/ops.h"

namespace heddle::ops {
namespace {

class BatchNormNode final : public Node {
 public:
  BatchNormNode(const char* name, const BatchNormForward& forward, const BatchNormExchange& exchange)
      : name_(name),
        relu_(forward.relu),
        batch_statistics_(forward.batch_statistics),
        exchange_(exchange),
        x_(forward.x),
        scale_(forward.scale),
        shift_(forward.shift),
        mean_(forward.mean),
        inv_std_(forward.inv_std),
        mask_(forward.mask) {
    if (relu_ && !forward.mask.defined()) y_ = forward.y;
  }
  const char* name() const noexcept override { return name_; }
  // xhat = (x - mean) inv_std, y = scale xhat + shift + addend. With dz = dy where the ReLU was open, and n rows:
  //   dshift = sum of dz, dscale = sum of dz xhat, daddend = dz,
  //   dx = scale inv_std (dz - (dshift + xhat dscale) / n) with batch statistics, which move with x,
  //   dx = scale inv_std dz with constant ones.
  // Over several ranks the sums and n in dx are those of all of them; dscale and dshift are the own part, which is
  // added up like any other gradient. The batch norm does not offer its mask to its consumer: the passes here take it
  // in for little.
  void backward(BackwardContext& ctx) override {
    BatchNormBackward op{.x = x_.get(name_),
                         .dy = ctx.grad_output(),
                         .scale = scale_.get(name_),
                         .shift = shift_.get(name_),
                         .mean = mean_.get(name_),
                         .inv_std = inv_std_.get(name_),
                         .relu = relu_,
                         .mask = mask_.get(name_),
                         .y = y_.get(name_),
                         .batch_statistics = batch_statistics_};
    if (ctx.needs_grad(0)) {
      op.x_relu_mask = ctx.take_relu_mask(0);
      if (batch_statistics_ && !op.x_relu_mask.defined()) ctx.promise_sums_to_zero(0);
      take_target(ctx, 0, op.dx, op.dx_mode);
    }
    if (ctx.needs_grad(1)) take_target(ctx, 1, op.dscale, op.dscale_mode);
    // Two inputs that are one variable have one place, which only one of two results can go to at once.
    const bool shift_apart = same_place(1, 2), addend_apart = same_place(0, 3);
    if (ctx.needs_grad(2) && shift_apart) op.dshift = Tensor::empty_like(op.shift);
    if (ctx.needs_grad(2) && !shift_apart) take_target(ctx, 2, op.dshift, op.dshift_mode);
    const bool wants_addend = inputs().size() > 3 && ctx.needs_grad(3);
    if (wants_addend && addend_apart) op.daddend = Tensor::empty_like(op.dy);
    if (wants_addend && !addend_apart) take_target(ctx, 3, op.daddend, op.daddend_mode);
    run(op);
    // The addend is added behind the scale: the sum of its gradient is the shift's.
    if (op.dshift.defined() && !shift_apart && op.dshift_mode == WriteMode::store && op.daddend.defined() &&
        !addend_apart && op.daddend_mode == WriteMode::store) {
      ctx.promise_column_sums(3, 2);
    }
    if (shift_apart && op.dshift.defined()) ctx.give(2, op.dshift);
    if (addend_apart && op.daddend.defined()) ctx.give(3, op.daddend);
  }
  void release() noexcept override {
    for (SavedTensor* saved : {&x_, &scale_, &shift_, &mean_, &inv_std_, &mask_, &y_}) saved->reset();
  }

 private:
  void run(BatchNormBackward& op) const {
    Backend& backend = backend_of(op.x);
    if (exchange_.ranks == 0) return backend.batch_norm_backward(op);
    Tensor own = Tensor::empty({batch_norm_exchange_numel(op.x.dim(-1))}, DType::f64, op.x.device());
    Tensor all = Tensor::empty({exchange_.ranks, own.numel()}, DType::f64, op.x.device());
    backend.batch_norm_backward_sums(op, own);
    exchange_.gather(BatchNormPass::backward, own, all);
    backend.batch_norm_backward_data(op, all);
  }
  static void take_target(BackwardContext& ctx, int input, Tensor& tensor, WriteMode& mode) {
    const GradTarget target = ctx.target(input);
    tensor = target.tensor;
    mode = target.mode;
  }
  bool same_place(std::size_t a, std::size_t b) const {
    if (b >= inputs().size()) return false;
    const Edge& first = inputs()[a];
    const Edge& second = inputs()[b];
    return first.node == second.node && first.leaf == second.leaf && first.output_index == second.output_index &&
           (first.node != nullptr || first.leaf != nullptr);
  }

  const char* name_;
  bool relu_, batch_statistics_;
  BatchNormExchange exchange_;
  SavedTensor x_, scale_, shift_, mean_, inv_std_, mask_, y_;  // with ReLU either mask or y
};

std::int64_t rows_of(const Tensor& x) { return x.shape().numel_between(0, x.rank() - 1); }

// The statistics of all ranks in their order. Throws if they are of one row, as far as the host can see that: on a GPU
// nobody reads it back, and the running variance just stays.
Tensor gather_statistics(const char* op, const Tensor& x, const BatchNormExchange& exchange) {
  const std::int64_t channels = x.dim(-1);
  Tensor own = Tensor::empty({batch_norm_exchange_numel(channels)}, DType::f64, x.device());
  Tensor all = Tensor::empty({exchange.ranks, own.numel()}, DType::f64, x.device());
  backend_of(x).batch_norm_statistics(x, own);
  exchange.gather(BatchNormPass::forward, own, all);
  if (!x.device().is_cpu()) return all;
  double rows = 0;
  for (std::int64_t r = 0; r < exchange.ranks; ++r) rows += all.host_data<double>()[r * own.numel() + 2 * channels];
  check_batch_norm_rows(op, x.shape(), static_cast<std::int64_t>(rows));
  return all;
}

Variable normalise(const char* op, const Variable& x, const Variable& addend, const Variable& scale,
                   const Variable& shift, const BatchNormOptions& options, bool relu) {
  const Tensor addend_data = addend.defined() ? addend.data() : Tensor();
  check_batch_norm(op, x.data(), addend_data, scale.data(), shift.data());
  HEDDLE_CHECK(options.eps > 0, op, ": eps is ", options.eps, ", must be above 0");
  HEDDLE_CHECK(options.momentum >= 0 && options.momentum <= 1, op, ": momentum is ", options.momentum,
               ", must be in [0, 1]");
  if (!options.training || options.running_mean.defined() || options.running_var.defined()) {
    check_running_statistics(op, x.data(), options.running_mean, options.running_var);
  }
  const bool exchanges = options.training && options.exchange.ranks > 0;
  BatchNormForward forward{.x = x.data(),
                           .scale = scale.data(),
                           .shift = shift.data(),
                           .addend = addend_data,
                           .relu = relu,
                           .eps = options.eps,
                           .batch_statistics = options.training,
                           .momentum = options.momentum,
                           .running_mean = options.running_mean,
                           .running_var = options.running_var};
  if (exchanges) {
    forward.exchanged = gather_statistics(op, x.data(), options.exchange);
  } else if (options.training) {
    check_batch_norm_rows(op, x.shape(), rows_of(x.data()));
  }
  Backend& backend = backend_of(x.data());
  forward.y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const bool graph = needs_graph({&x, &addend, &scale, &shift});
  if (graph) {
    forward.mean = Tensor::empty_like(scale.data());
    forward.inv_std = Tensor::empty_like(scale.data());
    if (relu) forward.mask = backend.batch_norm_mask(forward);
  }
  backend.batch_norm_forward(forward);
  if (!graph) return forward.y;
  auto node = std::make_shared<BatchNormNode>(op, forward, exchanges ? options.exchange : BatchNormExchange{});
  if (!addend.defined()) return make_result(forward.y, std::move(node), {&x, &scale, &shift});
  return make_result(forward.y, std::move(node), {&x, &scale, &shift, &addend});
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& scale, const Variable& shift, const BatchNormOptions& options) {
  return normalise("batch_norm", x, {}, scale, shift, options, false);
}

Variable batch_norm_relu(const Variable& x, const Variable& scale, const Variable& shift,
                         const BatchNormOptions& options) {
  return normalise("batch_norm_relu", x, {}, scale, shift, options, true);
}

Variable batch_norm_add_relu(const Variable& x, const Variable& addend, const Variable& scale, const Variable& shift,
                             const BatchNormOptions& options) {
  return normalise("batch_norm_add_relu", x, addend, scale, shift, options, true);
}

}  // namespace heddle::ops
