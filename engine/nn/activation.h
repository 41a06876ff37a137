// Activation layers: any shape in, the same shape out, no parameters.
#pragma once

#include "module.h"

namespace heddle::nn {

// max(0, x). Sequential computes it in the pass of a neighbour that can (Conv2d, Linear, MaxPool2d).
class ReLU final : public Module {
 public:
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override { return "ReLU()"; }
  FeatureMap trace(const FeatureMap& input) override { return input; }
};

class Sigmoid final : public Module {
 public:
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override { return "Sigmoid()"; }
  FeatureMap trace(const FeatureMap& input) override { return input; }
};

class Tanh final : public Module {
 public:
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override { return "Tanh()"; }
  FeatureMap trace(const FeatureMap& input) override { return input; }
};

// x Phi(x), exact.
class GELU final : public Module {
 public:
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override { return "GELU()"; }
  FeatureMap trace(const FeatureMap& input) override { return input; }
};

class Softmax final : public Module {
 public:
  explicit Softmax(int dim = -1) : dim_(dim) {}
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override { return join_text("Softmax(dim=", dim_, ")"); }
  FeatureMap trace(const FeatureMap& input) override { return input; }

 private:
  int dim_;
};

class LogSoftmax final : public Module {
 public:
  explicit LogSoftmax(int dim = -1) : dim_(dim) {}
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override { return join_text("LogSoftmax(dim=", dim_, ")"); }
  FeatureMap trace(const FeatureMap& input) override { return input; }

 private:
  int dim_;
};

}  // namespace heddle::nn
