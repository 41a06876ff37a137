#include "engine/autograd/variable.h"

#include "engine/autograd/variable_state.h"

namespace heddle {
namespace detail {

void settle(VariableState& leaf) {
  if (leaf.slot.same_as == nullptr) return;
  const std::shared_ptr<VariableState> source = std::move(leaf.slot.same_as);
  leaf.slot.same_as = nullptr;
  ++leaf.slot.writes;
  leaf.slot.grad.copy_from(source->slot.grad);
}

void settle_followers(VariableState& source) {
  const std::vector<std::weak_ptr<VariableState>> followers = std::move(source.slot.followers);
  source.slot.followers.clear();
  for (const std::weak_ptr<VariableState>& weak : followers) {
    const std::shared_ptr<VariableState> follower = weak.lock();
    if (follower != nullptr && follower->slot.same_as.get() == &source) settle(*follower);
  }
}

}  // namespace detail

namespace {
constexpr const char* kUndefined = "use of an undefined variable";

// Whether the memory can become that of the leaf.
void check_memory(const Variable& leaf, const Tensor& data, const Tensor& grad) {
  HEDDLE_CHECK(leaf.defined(), kUndefined);
  HEDDLE_CHECK(leaf.is_leaf(), "rebind of the result of an op");
  HEDDLE_CHECK(data.shape() == leaf.shape() && data.dtype() == leaf.dtype(), "rebind: ", leaf.shape(), " ",
               leaf.dtype(), " to memory for ", data.shape(), " ", data.dtype());
  HEDDLE_CHECK(!grad.defined() || (grad.shape() == leaf.shape() && grad.dtype() == leaf.dtype()),
               "rebind: gradient memory ", grad.shape(), " for data ", leaf.shape());
}

}  // namespace

Variable::Variable(Tensor data, bool requires_grad) : state_(std::make_shared<detail::VariableState>()) {
  state_->data = std::move(data);
  if (requires_grad) set_requires_grad(true);
}

const Tensor& Variable::data() const {
  HEDDLE_CHECK(defined(), kUndefined);
  return state_->data;
}

Tensor& Variable::mutable_data() {
  HEDDLE_CHECK(defined(), kUndefined);
  return state_->data;
}

bool Variable::requires_grad() const noexcept { return defined() && state_->requires_grad; }

void Variable::set_requires_grad(bool on) {
  HEDDLE_CHECK(defined(), kUndefined);
  HEDDLE_CHECK(is_leaf(), "requires_grad can be set on leaves only; use detach() on the result of an op");
  HEDDLE_CHECK(!on || is_floating(state_->data.dtype()), "a gradient needs a float dtype, this variable holds ",
               state_->data.dtype(), " with shape ", state_->data.shape());
  // What nobody trains may be zeroed by the owner of its memory.
  if (!on) {
    detail::settle(*state_);
    detail::settle_followers(*state_);
  }
  state_->requires_grad = on;
}

Tensor& Variable::grad() {
  HEDDLE_CHECK(defined(), kUndefined);
  HEDDLE_CHECK(is_leaf(), "only leaves keep a gradient; this variable is the result of an op");
  HEDDLE_CHECK(state_->requires_grad, "this variable does not require a gradient");
  GradSlot& slot = state_->slot;
  detail::settle(*state_);
  detail::settle_followers(*state_);
  ++slot.writes;
  const Tensor& data = state_->data;
  const bool fits = slot.grad.defined() && slot.grad.shape() == data.shape() && slot.grad.dtype() == data.dtype() &&
                    slot.grad.device() == data.device();
  if (!slot.grad.defined() || (slot.fresh && !fits)) slot.grad = Tensor::empty_like(data);
  if (slot.fresh) {
    slot.grad.fill_zero();
    slot.fresh = false;
  }
  return slot.grad;
}

void Variable::zero_grad() {
  HEDDLE_CHECK(defined(), kUndefined);
  HEDDLE_CHECK(is_leaf(), "zero_grad() on the result of an op");
  detail::settle_followers(*state_);
  state_->slot.same_as = nullptr;
  state_->slot.fresh = true;
}

std::uint64_t Variable::gradient_writes() const noexcept { return defined() ? state_->slot.writes : 0; }

bool Variable::grad_is_fresh() const noexcept { return !defined() || state_->slot.fresh; }

Variable Variable::grad_same_as() const {
  Variable source;
  if (defined()) source.state_ = state_->slot.same_as;
  return source;
}

void Variable::keep_grad() {
  HEDDLE_CHECK(defined(), kUndefined);
  HEDDLE_CHECK(is_leaf() && state_->slot.grad.defined(), "keep_grad() on a variable that has no gradient");
  detail::settle_followers(*state_);
  ++state_->slot.writes;
  state_->slot.same_as = nullptr;
  state_->slot.fresh = false;
}

Variable Variable::detach() const { return Variable(data()); }

void Variable::rebind(Tensor data, Tensor grad) {
  check_memory(*this, data, grad);
  data.copy_from(state_->data);
  share(std::move(data), std::move(grad));
}

void Variable::share(Tensor data, Tensor grad) {
  check_memory(*this, data, grad);
  detail::settle_followers(*state_);
  state_->slot.same_as = nullptr;
  state_->data = std::move(data);
  state_->slot.grad = std::move(grad);
  state_->slot.fresh = true;
}

const std::shared_ptr<Node>& Variable::grad_node() const noexcept {
  static const std::shared_ptr<Node> kNone;
  return defined() ? state_->node : kNone;
}

int Variable::output_index() const noexcept { return defined() ? state_->output_index : 0; }

Variable Variable::from_node(Tensor data, std::shared_ptr<Node> node, int output_index) {
  Variable result(std::move(data));
  result.state_->requires_grad = true;
  result.state_->node = std::move(node);
  result.state_->output_index = output_index;
  return result;
}

}  // namespace heddle
