// The block that residual networks are made of.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/nn/batch_norm.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/module.h"
#include "engine/nn/sequential.h"

namespace heddle::models {

struct ResidualOptions {
  std::int64_t stride = 1;     // of the first convolution; other than 1 the shortcut has a 1x1 convolution with it
  bool conv_bias = true;       // of all convolutions
  bool norm_shortcut = false;  // a batch norm behind the shortcut's convolution
};

// relu(norm(conv 3x3(relu(norm(conv 3x3 with stride(x))))) + shortcut(x)):
// x (N,H,W,in_channels) -> (N,OH,OW,out_channels), OH = (H - 1) / stride + 1. The shortcut is x itself where it has the
// shape of the sum, else a 1x1 convolution. Children: conv1, bn1, conv2, bn2 and, with a convolution on the shortcut,
// downsample.0 (and downsample.1, its norm), as in torchvision.
// Source: He et al., "Deep residual learning for image recognition", CVPR 2016, figure 2 and section 3.3.
class Residual final : public nn::Module {
 public:
  // Throws: InvalidArgument as the layers.
  Residual(std::int64_t in_channels, std::int64_t out_channels, const ResidualOptions& options);

  using Module::forward;
  nn::FeatureMap trace(const nn::FeatureMap& input) override;
  Variable forward(const Variable& x) override;
  std::string description() const override;

 private:
  std::int64_t in_channels_, out_channels_;
  ResidualOptions options_;
  std::shared_ptr<nn::Conv2d> conv1_, conv2_;
  std::shared_ptr<nn::BatchNorm2d> bn1_, bn2_;
  std::shared_ptr<nn::Sequential> downsample_;  // null: the shortcut is x
};

}  // namespace heddle::models
