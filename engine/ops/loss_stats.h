// Where losses leave their sums (tail_slot): a small tensor whose first contribution after zero() stores and whose
// later ones add, so that zeroing it costs no kernel. Used by ops::cross_entropy and, as the tail of the gradients, by
// nn::ParameterBuffer. Copies are handles to the same sums.
#pragma once

#include <memory>

#include "../autograd/node.h"
#include "../tensor/tensor.h"

namespace heddle::ops {

class LossStats {
 public:
  // None.
  LossStats() = default;
  // Sums that go on from what the tensor holds: f32 (tail_slot::kCount). Implicit, since options take it.
  LossStats(Tensor sums) : state_(std::make_shared<State>(State{std::move(sums), Content::sums})) {}

  bool defined() const noexcept { return state_ != nullptr && state_->sums.defined(); }
  // The tensor, for its shape and place.
  const Tensor& place() const noexcept { return state_->sums; }
  // Everything counts as 0 from here on. No kernel.
  void zero() noexcept;
  // Puts them into other memory, for all handles. They count as 0 then.
  void move(Tensor place);
  // Where the next contribution goes: to all elements.
  GradTarget target();
  // The sums, zero-filled if there was no contribution since zero(). A kernel only then, and not twice in a row. Ask
  // anew after each zero(): what is written to a tensor from before is lost.
  Tensor& tensor();
  // The same for a reader that promises not to write.
  const Tensor& read();
  // Whether there was a contribution since zero().
  bool has_sums() const noexcept { return state_->content == Content::sums; }

 private:
  enum class Content { sums, zeros, stale };  // stale: whatever is there counts as zeros
  struct State {
    Tensor sums;
    Content content;
  };
  std::shared_ptr<State> state_;
};

}  // namespace heddle::ops
