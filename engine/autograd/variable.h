// A tensor with history: what ops/ work on and what backward() starts from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "../tensor/tensor.h"

namespace heddle {

class Node;

namespace detail {
struct VariableState;
}

// A handle: copies share data, gradient and history. Made by ops, or from a tensor (then it is a leaf).
// A variable and its history belong to one thread at a time.
class Variable {
 public:
  Variable() = default;
  // A leaf. requires_grad asks backward() for its gradient; needs a float dtype. Throws: InvalidArgument.
  Variable(Tensor data, bool requires_grad = false);  // NOLINT(google-explicit-constructor): a tensor is a constant

  bool defined() const noexcept { return state_ != nullptr; }
  const Tensor& data() const;
  // Data for changes in place, for example by an own update rule. Values saved for a backward pass notice the change.
  Tensor& mutable_data();
  const Shape& shape() const { return data().shape(); }
  std::int64_t dim(int i) const { return data().dim(i); }
  std::int64_t numel() const { return data().numel(); }
  DType dtype() const { return data().dtype(); }
  Device device() const { return data().device(); }

  bool requires_grad() const noexcept;
  // Freezes or unfreezes a leaf. Throws: InvalidArgument on a result of an op.
  void set_requires_grad(bool on);
  bool is_leaf() const noexcept { return grad_node() == nullptr; }

  // Gradient of a leaf, in the data's shape; zeros if no backward pass has reached it since zero_grad().
  // Throws: InvalidArgument if the leaf does not require a gradient or this is the result of an op.
  Tensor& grad();
  // Marks the gradient as fresh: the next contribution is stored over it, not added. Runs no kernel, but for leaves
  // whose gradients are known to be this one's and are not fresh themselves.
  void zero_grad();
  // True until a contribution arrives after zero_grad() (or since the beginning).
  bool grad_is_fresh() const noexcept;
  // The leaf whose gradient is this leaf's too, which a backward pass found and did not write: grad() does, and whoever
  // is about to change that other gradient. Undefined: there is none.
  Variable grad_same_as() const;
  // What the gradient's memory holds is the gradient, as if a backward pass had stored it, and may be changed from now
  // on. For the owner of that memory.
  void keep_grad();
  // How often the gradient was given away for writing, or kept.
  std::uint64_t gradient_writes() const noexcept;
  // The same values without history, sharing memory.
  Variable detach() const;

  // Puts the leaf's data and gradient into the given memory (a flat buffer). The old values are copied; the gradient is
  // fresh. Throws: InvalidArgument if shape or dtype differ, or the variable is not a leaf.
  void rebind(Tensor data, Tensor grad);
  // The same for data that holds the values already, which another leaf has too: nothing is copied, and the old values
  // are dropped.
  void share(Tensor data, Tensor grad);

  // The op that made it, nullptr for a leaf.
  const std::shared_ptr<Node>& grad_node() const noexcept;
  int output_index() const noexcept;
  // Identity: two handles of one variable compare equal.
  friend bool operator==(const Variable& a, const Variable& b) noexcept { return a.state_ == b.state_; }

  // For ops: a result of node's output output_index. See make_result in node.h.
  static Variable from_node(Tensor data, std::shared_ptr<Node> node, int output_index);

 private:
  friend class Node;
  friend class BackwardContext;
  friend class BackwardPass;
  std::shared_ptr<detail::VariableState> state_;
};

}  // namespace heddle
