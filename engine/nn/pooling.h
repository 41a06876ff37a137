// Pooling layers on images (N,H,W,C). They have no parameters.
#pragma once

#include <optional>

#include "../backend/op_params.h"
#include "module.h"
#include "size2d.h"

namespace heddle::nn {

struct Pool2dOptions {
  Size2d kernel_size = 2;
  std::optional<Size2d> stride = {};  // left out: kernel_size
  Size2d padding = 0;                 // at most half the kernel
  bool ceil_mode = false;             // round the output size up
  bool count_include_pad = true;      // average: padding counts in the divisor, as in PyTorch
};

// The largest of each window. A ReLU in front is computed in the same pass.
class MaxPool2d final : public Module {
 public:
  // Throws: InvalidArgument naming the option that is out of range.
  explicit MaxPool2d(const Pool2dOptions& options);

  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  bool can_fuse_leading_relu() const override { return true; }
  Variable forward_after_relu(const Variable& x) override;
  std::optional<Pooling2d> as_pooling() const override { return Pooling2d{PoolKind::max, params_}; }
  FeatureMap trace(const FeatureMap& input) override { return input; }

 private:
  Pool2dParams params_;
};

// The mean of each window.
class AvgPool2d final : public Module {
 public:
  explicit AvgPool2d(const Pool2dOptions& options);

  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  std::optional<Pooling2d> as_pooling() const override { return Pooling2d{PoolKind::avg, params_}; }
  FeatureMap trace(const FeatureMap& input) override { return input; }

 private:
  Pool2dParams params_;
};

// A given output size; window i of an axis is [floor(i in/out), ceil((i+1) in/out)).
class AdaptiveAvgPool2d final : public Module {
 public:
  explicit AdaptiveAvgPool2d(Size2d output_size);

  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  FeatureMap trace(const FeatureMap& input) override { return input; }

 private:
  Size2d output_size_;
};

class AdaptiveMaxPool2d final : public Module {
 public:
  explicit AdaptiveMaxPool2d(Size2d output_size);

  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  FeatureMap trace(const FeatureMap& input) override { return input; }

 private:
  Size2d output_size_;
};

}  // namespace heddle::nn
