#include "models/resnet.h"

#include <vector>

#include "engine/nn/batch_norm.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/linear.h"
#include "engine/nn/pooling.h"
#include "engine/nn/sequential.h"
#include "engine/ops/ops.h"
#include "models/residual.h"

namespace heddle::models {
namespace {

constexpr std::int64_t kStages = 4;

class ResNet final : public nn::Module {
 public:
  ResNet(const ModelOptions& model, const ResNetOptions& options) : options_(options) {
    const std::int64_t stem = options.small_stem ? 3 : 7;
    conv1_ =
        register_module("conv1", std::make_shared<nn::Conv2d>(model.in_channels, options.base_channels,
                                                              nn::Conv2dOptions{.kernel_size = stem,
                                                                                .stride = options.small_stem ? 1 : 2,
                                                                                .padding = stem / 2,
                                                                                .bias = options.conv_bias}));
    bn1_ = register_module("bn1", std::make_shared<nn::BatchNorm2d>(options.base_channels));
    std::int64_t channels = options.base_channels;
    for (std::int64_t stage = 0; stage < kStages; ++stage) {
      const std::int64_t out_channels = options.base_channels << stage;
      stages_.push_back(register_module(join_text("layer", stage + 1), make_stage(channels, out_channels, stage)));
      channels = out_channels;
    }
    fc_ = register_module("fc", std::make_shared<nn::Linear>(channels, model.num_classes));
  }

  using Module::forward;
  Variable forward(const Variable& x) override {
    // With a pooling behind, the ReLU is in the pooling's pass, where the norm's output need not be kept for it.
    Variable y = conv1_->forward(x);
    y = options_.small_stem ? bn1_->forward_with_relu(y) : pool_.forward_after_relu(bn1_->forward(y));
    for (const std::shared_ptr<nn::Sequential>& stage : stages_) y = stage->forward(y);
    y = ops::adaptive_avg_pool2d(y, 1, 1);
    return fc_->forward(ops::flatten(y));
  }

  std::string description() const override {
    std::string text = "ResNet(\n";
    for (const auto& [name, child] : named_children()) {
      std::string layer = child->description();
      for (std::size_t at = layer.find('\n'); at != std::string::npos; at = layer.find('\n', at + 3)) {
        layer.replace(at, 1, "\n  ");
      }
      text += join_text("  (", name, "): ", layer, "\n");
    }
    return text + ")";
  }

  nn::FeatureMap trace(const nn::FeatureMap& input) override {
    conv1_->trace(input);
    return {};
  }

 private:
  std::shared_ptr<nn::Sequential> make_stage(std::int64_t in_channels, std::int64_t out_channels, std::int64_t stage) {
    const auto block = [&](std::int64_t inputs, std::int64_t stride) {
      return std::make_shared<Residual>(
          inputs, out_channels,
          ResidualOptions{.stride = stride, .conv_bias = options_.conv_bias, .norm_shortcut = options_.norm_shortcut});
    };
    return std::make_shared<nn::Sequential>(
        std::vector<std::shared_ptr<nn::Module>>{block(in_channels, stage == 0 ? 1 : 2), block(out_channels, 1)});
  }

  ResNetOptions options_;
  std::shared_ptr<nn::Conv2d> conv1_;
  std::shared_ptr<nn::BatchNorm2d> bn1_;
  nn::MaxPool2d pool_{{.kernel_size = 3, .stride = 2, .padding = 1}};
  std::vector<std::shared_ptr<nn::Sequential>> stages_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace

std::shared_ptr<nn::Module> make_resnet(const ModelOptions& options, const ResNetOptions& resnet) {
  const std::int64_t least = resnet.small_stem ? 3 : 7;
  HEDDLE_CHECK(options.height >= least && options.width >= least, "a ResNet whose first convolution is ", least, "x",
               least, ": images of ", options.height, "x", options.width, " are too small, it needs at least ", least,
               "x", least);
  HEDDLE_CHECK(resnet.base_channels >= 1, "a ResNet with ", resnet.base_channels, " channels");
  return std::make_shared<ResNet>(options, resnet);
}

std::shared_ptr<nn::Module> make_resnet18(const ModelOptions& options) { return make_resnet(options, {}); }

std::shared_ptr<nn::Module> make_resnet18_cifar(const ModelOptions& options) {
  return make_resnet(options, {.small_stem = true});
}

std::shared_ptr<nn::Module> make_resnet18_tv(const ModelOptions& options) {
  HEDDLE_CHECK(options.in_channels == 3, "model resnet18-tv: the images have ", options.in_channels,
               " channels, torchvision's ResNet-18 takes 3");
  return make_resnet(options, {.conv_bias = false, .norm_shortcut = true});
}

}  // namespace heddle::models
