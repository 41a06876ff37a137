#include "models/residual.h"

#include <vector>

namespace heddle::models {

Residual::Residual(std::int64_t in_channels, std::int64_t out_channels, const ResidualOptions& options)
    : in_channels_(in_channels), out_channels_(out_channels), options_(options) {
  const auto conv = [&](std::int64_t inputs, std::int64_t kernel_size, std::int64_t stride) {
    return std::make_shared<nn::Conv2d>(
        inputs, out_channels,
        nn::Conv2dOptions{
            .kernel_size = kernel_size, .stride = stride, .padding = kernel_size / 2, .bias = options.conv_bias});
  };
  conv1_ = register_module("conv1", conv(in_channels, 3, options.stride));
  bn1_ = register_module("bn1", std::make_shared<nn::BatchNorm2d>(out_channels));
  conv2_ = register_module("conv2", conv(out_channels, 3, 1));
  bn2_ = register_module("bn2", std::make_shared<nn::BatchNorm2d>(out_channels));
  if (options.stride == 1 && in_channels == out_channels) return;
  std::vector<std::shared_ptr<nn::Module>> shortcut{conv(in_channels, 1, options.stride)};
  if (options.norm_shortcut) shortcut.push_back(std::make_shared<nn::BatchNorm2d>(out_channels));
  downsample_ = register_module("downsample", std::make_shared<nn::Sequential>(std::move(shortcut)));
}

Variable Residual::forward(const Variable& x) {
  const Variable shortcut = downsample_ ? downsample_->forward(x) : x;
  const Variable y = bn1_->forward_with_relu(conv1_->forward(x));
  return bn2_->forward_with_add_relu(conv2_->forward(y), shortcut);
}

nn::FeatureMap Residual::trace(const nn::FeatureMap& input) {
  if (downsample_) downsample_->trace(input);
  return bn2_->trace(conv2_->trace(bn1_->trace(conv1_->trace(input))));
}

std::string Residual::description() const {
  std::string text = join_text("Residual(", in_channels_, ", ", out_channels_, ", stride=", options_.stride);
  if (!options_.conv_bias) text += ", bias=False";
  if (options_.norm_shortcut) text += ", norm_shortcut=True";
  return text + ")";
}

}  // namespace heddle::models
