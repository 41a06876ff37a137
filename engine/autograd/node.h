// One op in the history, and what its backward() works with. An own op is a Node and a function that makes it: see
// examples/embed and CONTRIBUTING.md.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "../backend/op_params.h"
#include "variable.h"

namespace heddle {

// A tensor kept for the backward pass. It notices when its values were changed after they were saved. Memory that the
// user owns can be changed without notice, so it is copied.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const Tensor& tensor);  // NOLINT(google-explicit-constructor)
  // The tensor. Throws: Error naming op and shape if its memory was changed since it was saved.
  const Tensor& get(const char* op) const;
  bool defined() const noexcept { return tensor_.defined(); }
  void reset() { tensor_ = Tensor(); }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

// Where the gradient of one value is collected during a backward pass.
struct GradSlot {
  Tensor grad;
  int pending = 0;            // contributions still to come
  int consumers = 0;          // edges that lead here in this pass
  bool fresh = true;          // nothing was written yet
  bool owned = false;         // grad is ours to add to; false: shared with another slot
  bool one = false;           // the ones that a pass starts with; grad may be undefined until somebody reads it
  bool masked = false;        // the producer's ReLU mask is applied already
  bool sums_to_zero = false;  // over all but the last dimension, by its only contribution's nature
  // The leaf whose gradient is the sum of this one over all but the last dimension, by its only contribution's nature.
  std::shared_ptr<detail::VariableState> column_sums;
  std::uint64_t column_sums_writes = 0;  // that leaf's `writes` then
  std::uint64_t writes = 0;              // of a leaf: how often its gradient was given away for writing
  // Of a leaf's slot: the leaf whose gradient this one equals, and that is all that is known of it: its own memory was
  // not written. And the other way round: the leaves that take this one's, which must not change under them.
  std::shared_ptr<detail::VariableState> same_as;
  std::vector<std::weak_ptr<detail::VariableState>> followers;
};

// From a node to a value that it used.
struct Edge {
  std::shared_ptr<Node> node;                   // producer, or
  std::shared_ptr<detail::VariableState> leaf;  // leaf; both empty: no gradient is wanted
  int output_index = 0;
  Shape shape;
  DType dtype = DType::f32;
  Device device;
};

class BackwardContext;

class Node {
 public:
  explicit Node(int num_outputs = 1);
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Name of the op, for messages and profiles.
  virtual const char* name() const noexcept = 0;
  // Reads ctx.grad_output() and writes or adds the gradients of those inputs that need one.
  virtual void backward(BackwardContext& ctx) = 0;
  // Drops saved tensors. Called after backward() unless the graph is retained.
  virtual void release() noexcept = 0;
  // If output i is max(0, .) whose gradient must be multiplied by (mask > 0): that mask. Its only consumer may apply it
  // while it writes the gradient; otherwise the node does (ctx.grad_output_is_masked()).
  virtual Tensor relu_mask(int output) const;

  // Edges to the inputs, in the order that BackwardContext counts them. Called once, by make_result.
  void set_inputs(std::initializer_list<const Variable*> inputs);
  void set_inputs(const std::vector<Variable>& inputs);
  const std::vector<Edge>& inputs() const noexcept { return inputs_; }
  // Shape of an output, for a gradient that nobody contributed to.
  void set_output(int i, const Tensor& data);

 private:
  friend class BackwardContext;
  friend class BackwardPass;
  void add_edge(const Variable& input);

  std::vector<Edge> inputs_;
  std::vector<GradSlot> slots_;  // one an output
  std::vector<Edge> outputs_;    // shape, dtype and device of each output
  std::uint64_t sequence_;       // order of creation
  std::uint64_t visited_ = 0;    // id of the last pass that met it
  bool released_ = false;
};

// Where to write a gradient, and whether to store or to add.
struct GradTarget {
  Tensor tensor;
  WriteMode mode;
};

// What Node::backward sees.
class BackwardContext {
 public:
  explicit BackwardContext(Node& node) : node_(node) {}

  // Gradient of output i, all contributions added; zeros if there were none. Read only: it may be shared.
  const Tensor& grad_output(int i = 0);
  bool has_grad_output(int i = 0) const;
  // True if the gradient of output i is known to be 1 everywhere: this node made the value that backward() started at.
  bool grad_output_is_one(int i = 0) const;
  // True if the consumer applied relu_mask(i) already.
  bool grad_output_is_masked(int i = 0) const;
  // True if the gradient of output i is known to sum to 0 over all but the last dimension but for rounding: what is
  // added to the output along them (a bias) has the gradient 0.
  bool grad_output_sums_to_zero(int i = 0) const;
  bool needs_grad(int input) const;
  // Memory of input's shape to write its gradient to, in the mode given. Each call must be followed by one write.
  GradTarget target(int input);
  // Gives an already computed gradient: stored without a copy where possible, else added. The caller must not change it
  // later.
  void give(int input, const Tensor& gradient);
  // A mask that this node must apply to the gradient of input that it writes with target() or give(); undefined if
  // none. Calling it is the promise to do so.
  Tensor take_relu_mask(int input);
  // Promises that the gradient which this node writes for input sums to 0 over all but the last dimension but for
  // rounding (a batch norm with batch statistics does not see what is added to all of x).
  void promise_sums_to_zero(int input);
  // Promises that the gradient which this node writes for input has the sum over all but the last dimension that it has
  // stored, by target(), as the gradient of the leaf `sums`.
  void promise_column_sums(int input, int sums);
  // Makes that promise's gradient also the gradient of the leaf `input`, without writing it, if there was such a
  // promise for output i and nothing else contributes to it so far; else false, and the node writes it.
  bool give_column_sums(int input, int i = 0);

 private:
  // Throw InvalidArgument naming the op if it has no such output or input.
  GradSlot& output_slot(int i) const;
  const Edge& input_edge(int input) const;
  GradSlot& slot_of(const Edge& edge) const;
  // Whether it can be the gradient of what the edge leads to.
  static bool fits(const Tensor& gradient, const Edge& edge);
  Node& node_;
};

// True if ops record history in this thread.
bool grad_enabled() noexcept;
// Switches recording off in this thread while it lives.
class NoGradGuard {
 public:
  NoGradGuard() noexcept;
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool previous_;
};

// True if an op on these inputs has to be recorded.
bool needs_graph(std::initializer_list<const Variable*> inputs) noexcept;
bool needs_graph(const std::vector<Variable>& inputs) noexcept;

// The variable that an op returns: y as output 0 of node, whose inputs are set here. For ops with several outputs use
// Node::set_inputs, Node::set_output and Variable::from_node.
Variable make_result(Tensor y, std::shared_ptr<Node> node, std::initializer_list<const Variable*> inputs);
Variable make_result(Tensor y, std::shared_ptr<Node> node, const std::vector<Variable>& inputs);

}  // namespace heddle
