// A chain of modules.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "module.h"

namespace heddle::nn {

// Runs its layers in order; they are named by position ("0", "1", ...). Where a ReLU follows a layer, or stands before
// one, that has a fused op for both, or a ReLU and a pooling follow one that has a fused op for all three, that op is
// used; names, parameters and results stay the same.
class Sequential final : public Module {
 public:
  // in_channels: the last dimension of the input, 0 if not known. It is needed only where a Flatten comes before the
  // first convolution or linear layer. Throws: InvalidArgument if there is no layer, one is null, or the channels of
  // neighbours do not fit.
  explicit Sequential(std::vector<std::shared_ptr<Module>> layers, std::int64_t in_channels = 0);

  // Throws: what the layers throw; an InvalidArgument names the layer.
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  FeatureMap trace(const FeatureMap& input) override;

  std::size_t size() const noexcept { return layers_.size(); }
  const std::shared_ptr<Module>& operator[](std::size_t i) const { return layers_.at(i); }

 private:
  enum class Fusion : std::uint8_t { none, relu_after, relu_before, relu_and_pool_after };
  struct Stage {
    std::size_t layer;
    Fusion fusion;
    Pooling2d pooling = {};  // of relu_and_pool_after
  };
  std::string stage_name(const Stage& stage) const;
  void plan_stages();

  std::vector<std::shared_ptr<Module>> layers_;
  std::vector<Stage> stages_;  // what forward runs
};

}  // namespace heddle::nn
