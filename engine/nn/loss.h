// Loss layers: modules with two inputs, predictions and targets.
#pragma once

#include <span>

#include "../ops/ops.h"
#include "module.h"

namespace heddle::nn {

// forward({logits (..,K), labels i64 (..)}), see ops::cross_entropy.
class CrossEntropyLoss final : public Module {
 public:
  explicit CrossEntropyLoss(ops::CrossEntropyOptions options = {}) : options_(std::move(options)) {}

  using Module::forward;
  Variable forward(std::span<const Variable> inputs) override;
  Variable forward(const Variable& logits, const Tensor& labels);
  std::string description() const override;

 private:
  ops::CrossEntropyOptions options_;
};

// forward({x, target}) of equal shapes: (x - target)^2.
class MSELoss final : public Module {
 public:
  explicit MSELoss(ops::Reduction reduction = ops::Reduction::mean) : reduction_(reduction) {}

  using Module::forward;
  Variable forward(std::span<const Variable> inputs) override;
  Variable forward(const Variable& x, const Variable& target);
  std::string description() const override;

 private:
  ops::Reduction reduction_;
};

}  // namespace heddle::nn
