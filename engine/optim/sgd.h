// Stochastic gradient descent with momentum, Nesterov momentum and weight decay, as PyTorch defines it.
#pragma once

#include <span>

#include "optimizer.h"

namespace heddle::optim {

// g = gradient + weight_decay w;  v = momentum v + g;  w -= lr (nesterov ? g + momentum v : v).
// Source: torch.optim.SGD with dampening 0; Sutskever et al., "On the importance of initialization and momentum in deep
// learning", ICML 2013.
class Sgd final : public Optimizer {
 public:
  struct Group {
    std::vector<SegmentRange> ranges;
    SgdParams params;
  };

  // One group of all parameters. The buffer must outlive the optimiser. Throws: InvalidArgument.
  Sgd(nn::ParameterBuffer& parameters, double learning_rate, const SgdParams& params = {});
  // Groups come from a named vector or array: there is no overload for braces, since g++ 12 would take
  // {.momentum = 0.9} for one as well.
  Sgd(nn::ParameterBuffer& parameters, double learning_rate, std::span<const Group> groups);

  const char* name() const noexcept override { return "sgd"; }

 protected:
  // "momentum", if a group has one.
  std::vector<std::pair<std::string, Tensor>> own_state_tensors() override;
  void update(UpdateTensors& tensors, const UpdateParams& params) override;

 private:
  std::vector<Group> groups_;
  Tensor velocity_;  // undefined if no group has momentum
};

}  // namespace heddle::optim
