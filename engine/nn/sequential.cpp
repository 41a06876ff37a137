#include "engine/nn/sequential.h"

#include "engine/nn/activation.h"

namespace heddle::nn {

Sequential::Sequential(std::vector<std::shared_ptr<Module>> layers, std::int64_t in_channels)
    : layers_(std::move(layers)) {
  HEDDLE_CHECK(!layers_.empty(), "Sequential: it has no layers");
  HEDDLE_CHECK(in_channels >= 0, "Sequential: ", in_channels, " input channels");
  for (std::size_t i = 0; i < layers_.size(); ++i) register_module(std::to_string(i), layers_[i]);
  plan_stages();
  Sequential::trace({.channels = in_channels});
}

void Sequential::plan_stages() {
  const auto is_relu = [&](std::size_t i) {
    return i < layers_.size() && dynamic_cast<const ReLU*>(layers_[i].get()) != nullptr;
  };
  std::size_t i = 0;
  while (i < layers_.size()) {
    // A pool in which the ReLU costs nothing goes before a convolution, whose fused ReLU has to write its result at
    // full size and keep it for backward.
    const bool pool_takes_next = is_relu(i + 1) && i + 2 < layers_.size() && layers_[i + 2]->can_fuse_leading_relu();
    const std::optional<Pooling2d> pooling =
        is_relu(i + 1) && i + 2 < layers_.size() ? layers_[i + 2]->as_pooling() : std::nullopt;
    if (pooling && layers_[i]->can_fuse_relu_and_pool(*pooling)) {
      stages_.push_back({i, Fusion::relu_and_pool_after, *pooling});
      i += 3;
    } else if (is_relu(i) && i + 1 < layers_.size() && layers_[i + 1]->can_fuse_leading_relu()) {
      stages_.push_back({i + 1, Fusion::relu_before});
      i += 2;
    } else if (is_relu(i + 1) && !pool_takes_next && layers_[i]->can_fuse_relu()) {
      stages_.push_back({i, Fusion::relu_after});
      i += 2;
    } else {
      stages_.push_back({i, Fusion::none});
      i += 1;
    }
  }
}

Variable Sequential::forward(const Variable& x) {
  Variable value = x;
  for (const Stage& stage : stages_) {
    Module& layer = *layers_[stage.layer];
    try {
      switch (stage.fusion) {
        case Fusion::none: value = layer.forward(value); break;
        case Fusion::relu_after: value = layer.forward_with_relu(value); break;
        case Fusion::relu_before: value = layer.forward_after_relu(value); break;
        case Fusion::relu_and_pool_after: value = layer.forward_with_relu_and_pool(value, stage.pooling); break;
      }
    } catch (const InvalidArgument& e) {
      throw InvalidArgument(join_text(stage_name(stage), ": ", e.what()));
    }
  }
  return value;
}

std::string Sequential::stage_name(const Stage& stage) const {
  const auto name = [&](std::size_t i) { return join_text("layer ", i, " ", layers_[i]->description()); };
  if (stage.fusion != Fusion::relu_and_pool_after) return name(stage.layer);
  return join_text(name(stage.layer), " with ", name(stage.layer + 2));
}

FeatureMap Sequential::trace(const FeatureMap& input) {
  FeatureMap map = input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    try {
      map = layers_[i]->trace(map);
    } catch (const InvalidArgument& e) {
      throw InvalidArgument(join_text("layer ", i, ": ", e.what()));
    }
  }
  return map;
}

std::string Sequential::description() const {
  std::string text = "Sequential(\n";
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    std::string layer = layers_[i]->description();
    for (std::size_t at = layer.find('\n'); at != std::string::npos; at = layer.find('\n', at + 3)) {
      layer.replace(at, 1, "\n  ");
    }
    text += join_text("  (", i, "): ", layer, "\n");
  }
  return text + ")";
}

}  // namespace heddle::nn
