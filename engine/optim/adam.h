// Adam, and AdamW with decoupled weight decay, as PyTorch defines them.
#pragma once

#include <span>

#include "optimizer.h"

namespace heddle::optim {

// m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= lr (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps), where t is
// step_count() of the optimiser, one number for all parameters. Adam adds weight_decay w to g; AdamW (decoupled) first
// does w -= lr weight_decay w.
// Source: Kingma and Ba, "Adam", ICLR 2015, algorithm 1; Loshchilov and Hutter, "Decoupled weight decay
// regularization", ICLR 2019, algorithm 2 as torch.optim.AdamW has it.
class Adam : public Optimizer {
 public:
  struct Group {
    std::vector<SegmentRange> ranges;
    AdamParams params;
  };

  // One group of all parameters. The buffer must outlive the optimiser. Throws: InvalidArgument.
  Adam(nn::ParameterBuffer& parameters, double learning_rate, const AdamParams& params = {});
  // Groups come from a named vector or array: for braces there is no overload, since g++ 12 would take {.beta1 = 0.8}
  // for one as well.
  Adam(nn::ParameterBuffer& parameters, double learning_rate, std::span<const Group> groups);

  // "adamw" if the first group's decay is decoupled, else "adam".
  const char* name() const noexcept override;

 protected:
  // "first_moment", "second_moment".
  std::vector<std::pair<std::string, Tensor>> own_state_tensors() override;
  void update(UpdateTensors& tensors, const UpdateParams& params) override;

 private:
  std::vector<Group> groups_;
  Tensor first_moment_, second_moment_;
};

// Adam with decoupled decay in all groups; the default decay is PyTorch's 0.01.
class AdamW final : public Adam {
 public:
  explicit AdamW(nn::ParameterBuffer& parameters, double learning_rate, AdamParams params = {.weight_decay = 0.01});
  AdamW(nn::ParameterBuffer& parameters, double learning_rate, std::span<const Group> groups);
};

}  // namespace heddle::optim
