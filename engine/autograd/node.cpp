#include "engine/autograd/node.h"

#include <algorithm>
#include <atomic>

#include "engine/autograd/variable_state.h"
#include "engine/backend/backend.h"

namespace heddle {
namespace {

std::atomic<std::uint64_t> next_sequence{1};
thread_local bool recording = true;

// Nodes whose last owner went away while another node was being destroyed. A chain of a million nodes would overflow
// the stack if each destroyed the next from inside its own destructor.
thread_local std::vector<std::shared_ptr<Node>>* doomed = nullptr;

}  // namespace

SavedTensor::SavedTensor(const Tensor& tensor) : tensor_(tensor) {
  if (tensor_.defined() && tensor_.storage()->is_external()) tensor_ = tensor_.clone();
  version_ = tensor_.version();
}

const Tensor& SavedTensor::get(const char* op) const {
  if (tensor_.version() != version_) {
    throw Error(join_text("backward of ", op, ": a value of shape ", tensor_.shape(),
                          " that it needs was changed after the forward pass"));
  }
  return tensor_;
}

Node::Node(int num_outputs)
    : slots_(static_cast<std::size_t>(num_outputs)),
      outputs_(static_cast<std::size_t>(num_outputs)),
      sequence_(next_sequence.fetch_add(1, std::memory_order_relaxed)) {}

Node::~Node() {
  std::vector<std::shared_ptr<Node>> mine;
  const bool outermost = doomed == nullptr;
  if (outermost) doomed = &mine;
  for (Edge& edge : inputs_) {
    if (edge.node != nullptr && edge.node.use_count() == 1) doomed->push_back(std::move(edge.node));
  }
  if (!outermost) return;
  while (!mine.empty()) {
    const std::shared_ptr<Node> next = std::move(mine.back());
    mine.pop_back();
  }
  doomed = nullptr;
}

Tensor Node::relu_mask(int) const { return {}; }

void Node::add_edge(const Variable& input) {
  Edge edge;
  if (input.defined()) {
    edge.shape = input.shape();
    edge.dtype = input.dtype();
    edge.device = input.device();
    if (input.requires_grad()) {
      edge.node = input.grad_node();
      edge.output_index = input.output_index();
      if (edge.node == nullptr) edge.leaf = input.state_;
    }
  }
  inputs_.push_back(std::move(edge));
}

void Node::set_inputs(std::initializer_list<const Variable*> inputs) {
  inputs_.reserve(inputs.size());
  for (const Variable* input : inputs) add_edge(*input);
}

void Node::set_inputs(const std::vector<Variable>& inputs) {
  inputs_.reserve(inputs.size());
  for (const Variable& input : inputs) add_edge(input);
}

void Node::set_output(int i, const Tensor& data) {
  HEDDLE_CHECK(i >= 0 && static_cast<std::size_t>(i) < outputs_.size(), "set_output(", i, ") of ", name(),
               ", which has ", outputs_.size(), " outputs");
  Edge& output = outputs_[static_cast<std::size_t>(i)];
  output.shape = data.shape();
  output.dtype = data.dtype();
  output.device = data.device();
}

GradSlot& BackwardContext::output_slot(int i) const {
  HEDDLE_CHECK(i >= 0 && static_cast<std::size_t>(i) < node_.slots_.size(), "backward of ", node_.name(), ": output ",
               i, " is asked for, the op has ", node_.slots_.size());
  return node_.slots_[static_cast<std::size_t>(i)];
}

const Edge& BackwardContext::input_edge(int input) const {
  HEDDLE_CHECK(input >= 0 && static_cast<std::size_t>(input) < node_.inputs_.size(), "backward of ", node_.name(),
               ": input ", input, " is asked for, the op has ", node_.inputs_.size());
  return node_.inputs_[static_cast<std::size_t>(input)];
}

const Tensor& BackwardContext::grad_output(int i) {
  GradSlot& slot = output_slot(i);
  if (slot.fresh) {
    const Edge& output = node_.outputs_[static_cast<std::size_t>(i)];
    slot.grad = Tensor::zeros(output.shape, output.dtype, output.device);
    slot.fresh = false;
  } else if (!slot.grad.defined()) {
    const Edge& output = node_.outputs_[static_cast<std::size_t>(i)];
    slot.grad = Tensor::empty(output.shape, output.dtype, output.device);
    backend_for(output.device).fill(slot.grad, 1.0);
  }
  return slot.grad;
}

bool BackwardContext::grad_output_is_one(int i) const { return output_slot(i).one; }

bool BackwardContext::has_grad_output(int i) const { return !output_slot(i).fresh; }

bool BackwardContext::grad_output_is_masked(int i) const { return output_slot(i).masked; }

bool BackwardContext::grad_output_sums_to_zero(int i) const { return output_slot(i).sums_to_zero; }

bool BackwardContext::needs_grad(int input) const {
  const Edge& edge = input_edge(input);
  return edge.node != nullptr || edge.leaf != nullptr;
}

bool BackwardContext::fits(const Tensor& gradient, const Edge& edge) {
  return gradient.defined() && gradient.shape() == edge.shape && gradient.dtype() == edge.dtype &&
         gradient.device() == edge.device;
}

GradSlot& BackwardContext::slot_of(const Edge& edge) const {
  HEDDLE_CHECK(edge.node != nullptr || edge.leaf != nullptr, "backward of ", node_.name(),
               ": a gradient is given to an input that needs none; ask needs_grad() first");
  if (edge.node != nullptr) return edge.node->slots_[static_cast<std::size_t>(edge.output_index)];
  return edge.leaf->slot;
}

GradTarget BackwardContext::target(int input) {
  const Edge& edge = input_edge(input);
  GradSlot& slot = slot_of(edge);
  if (edge.leaf != nullptr) {
    detail::settle(*edge.leaf);
    detail::settle_followers(*edge.leaf);
    ++slot.writes;
  }
  if (slot.fresh) {
    // A leaf keeps its memory, unless it was given another tensor since.
    const bool keep = edge.leaf != nullptr && fits(slot.grad, edge);
    if (!keep) slot.grad = Tensor::empty(edge.shape, edge.dtype, edge.device);
    slot.fresh = false;
    slot.owned = true;
    return {slot.grad, WriteMode::store};
  }
  HEDDLE_CHECK(edge.leaf == nullptr || fits(slot.grad, edge), "backward of ", node_.name(),
               ": the gradient of an input has shape ", slot.grad.shape(), ", the input now ", edge.shape,
               "; call zero_grad() after giving a variable another tensor");
  if (edge.node != nullptr && !slot.owned) {
    // A shared gradient whose other holders are gone is ours by now.
    const std::shared_ptr<Storage>& storage = slot.grad.storage();
    if (storage.use_count() != 1 || storage->is_external()) slot.grad = slot.grad.clone();
    slot.owned = true;
  }
  return {slot.grad, WriteMode::add};
}

void BackwardContext::give(int input, const Tensor& gradient) {
  const Edge& edge = input_edge(input);
  HEDDLE_CHECK(gradient.numel() == edge.shape.numel() && gradient.dtype() == edge.dtype, "backward of ", node_.name(),
               ": gradient ", gradient.shape(), " ", gradient.dtype(), " for an input ", edge.shape, " ", edge.dtype);
  GradSlot& slot = slot_of(edge);
  const Tensor shaped = gradient.reshape(edge.shape);
  if (edge.node != nullptr && slot.fresh) {
    slot.grad = shaped;
    slot.owned = false;
    slot.fresh = false;
    return;
  }
  GradTarget destination = target(input);
  if (destination.mode == WriteMode::store) {
    destination.tensor.copy_from(shaped);
  } else {
    backend_for(edge.device).axpy(1.0, shaped, destination.tensor);
  }
}

Tensor BackwardContext::take_relu_mask(int input) {
  const Edge& edge = input_edge(input);
  if (edge.node == nullptr) return {};
  GradSlot& slot = slot_of(edge);
  if (slot.consumers != 1) return {};
  Tensor mask = edge.node->relu_mask(edge.output_index);
  if (mask.defined()) slot.masked = true;
  return mask;
}

void BackwardContext::promise_sums_to_zero(int input) {
  const Edge& edge = input_edge(input);
  if (edge.node == nullptr) return;
  GradSlot& slot = slot_of(edge);
  // Other consumers' gradients do not sum to zero.
  slot.sums_to_zero = slot.consumers == 1;
}

void BackwardContext::promise_column_sums(int input, int sums) {
  const Edge& edge = input_edge(input);
  const Edge& leaf = input_edge(sums);
  if (edge.node == nullptr || leaf.leaf == nullptr) return;
  GradSlot& slot = slot_of(edge);
  if (slot.consumers != 1) return;
  slot.column_sums = leaf.leaf;
  slot.column_sums_writes = leaf.leaf->slot.writes;
}

bool BackwardContext::give_column_sums(int input, int i) {
  const GradSlot& output = output_slot(i);
  const std::shared_ptr<detail::VariableState>& source = output.column_sums;
  const Edge& edge = input_edge(input);
  if (source == nullptr || edge.leaf == nullptr || edge.leaf == source) return false;
  GradSlot& slot = edge.leaf->slot;
  // Somebody may have added to the source since, or it may be what it is by another one.
  if (source->slot.writes != output.column_sums_writes || source->slot.fresh || source->slot.same_as != nullptr ||
      !slot.fresh || !slot.followers.empty() || !fits(slot.grad, edge) || !fits(source->slot.grad, edge)) {
    return false;
  }
  slot.fresh = false;
  slot.same_as = source;
  source->slot.followers.push_back(edge.leaf);
  return true;
}

bool grad_enabled() noexcept { return recording; }

NoGradGuard::NoGradGuard() noexcept : previous_(recording) { recording = false; }
NoGradGuard::~NoGradGuard() { recording = previous_; }

bool needs_graph(std::initializer_list<const Variable*> inputs) noexcept {
  return recording && std::any_of(inputs.begin(), inputs.end(), [](const Variable* v) { return v->requires_grad(); });
}

bool needs_graph(const std::vector<Variable>& inputs) noexcept {
  return recording && std::any_of(inputs.begin(), inputs.end(), [](const Variable& v) { return v.requires_grad(); });
}

Variable make_result(Tensor y, std::shared_ptr<Node> node, std::initializer_list<const Variable*> inputs) {
  node->set_inputs(inputs);
  node->set_output(0, y);
  return Variable::from_node(std::move(y), std::move(node), 0);
}

Variable make_result(Tensor y, std::shared_ptr<Node> node, const std::vector<Variable>& inputs) {
  node->set_inputs(inputs);
  node->set_output(0, y);
  return Variable::from_node(std::move(y), std::move(node), 0);
}

}  // namespace heddle
