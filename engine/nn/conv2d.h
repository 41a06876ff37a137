// The 2-D convolution layer.
#pragma once

#include <cstdint>

#include "../backend/op_params.h"
#include "module.h"
#include "size2d.h"

namespace heddle::nn {

struct Conv2dOptions {
  Size2d kernel_size = 1;
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

// x (N,H,W,in_channels) -> (N,OH,OW,out_channels), OH = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1.
// Parameters: "weight" (O,KH,KW,I/groups), "bias" (O). A ReLU that follows is computed in the same pass, and so
// is a ReLU with a pooling by 2x2 behind it.
class Conv2d final : public Module {
 public:
  // Throws: InvalidArgument if an option is out of range or groups does not divide both channel counts.
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, const Conv2dOptions& options);

  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  bool can_fuse_relu() const override { return true; }
  Variable forward_with_relu(const Variable& x) override;
  bool can_fuse_relu_and_pool(const Pooling2d& pooling) const override { return pools_2x2(pooling.params); }
  Variable forward_with_relu_and_pool(const Variable& x, const Pooling2d& pooling) override;
  FeatureMap trace(const FeatureMap& input) override;

  const Variable& weight() const noexcept { return weight_; }
  const Variable& bias() const noexcept { return bias_; }  // undefined without

 protected:
  void reset_own_parameters(Philox& random) override;

 private:
  std::int64_t in_channels_, out_channels_;
  Conv2dOptions options_;
  Conv2dParams params_;
  Variable weight_, bias_;
};

}  // namespace heddle::nn
