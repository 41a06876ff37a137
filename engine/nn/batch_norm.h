// The batch norm layer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../comm/communicator.h"
#include "../ops/ops.h"
#include "module.h"

namespace heddle::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  // Share of the new value in the running statistics, as in PyTorch: 0.1 keeps nine tenths of the old one.
  double momentum = 0.1;
};

// x (N,H,W,channels) or (N,channels) -> the same shape: (x - mean) / sqrt(var + eps) * weight + bias for each channel.
// In training mean and variance (divided by the number of values) are those of the batch, and the running ones move
// towards them (the variance divided by the number less one); in evaluation the running ones are taken and stay.
// Parameters: "weight" (channels), 1 at first, "bias" (channels), 0; buffers: "running_mean" (channels), 0,
// "running_var" (channels), 1. All f32. A ReLU that follows is computed in the same pass.
class BatchNorm2d final : public Module {
 public:
  // Throws: InvalidArgument unless channels >= 1, eps > 0 and momentum is in [0,1].
  explicit BatchNorm2d(std::int64_t channels, const BatchNormOptions& options = {});

  // Throws: InvalidArgument, naming layer and shape, also for one value per channel in training; then nothing was
  // changed. CommError when synchronised.
  using Module::forward;
  Variable forward(const Variable& x) override;
  std::string description() const override;
  bool can_fuse_relu() const override { return true; }
  Variable forward_with_relu(const Variable& x) override;
  // max(0, forward(x) + addend), the end of a residual block; addend has x's shape and dtype.
  Variable forward_with_add_relu(const Variable& x, const Variable& addend);
  FeatureMap trace(const FeatureMap& input) override;

  // From now on the batch in training is that of all ranks of the group: each forward and each backward pass has one
  // exchange, in which every rank takes part, also one without images (x (0,H,W,channels)). The communicator must
  // outlive the layer's use; nullptr ends it.
  void synchronise(comm::Communicator* communicator);
  // The same with an exchange of one's own.
  void synchronise(ops::BatchNormExchange exchange) { exchange_ = std::move(exchange); }

  // Values of one channel that one image brings, in the last forward pass; 0 before the first one.
  std::int64_t values_per_image() const noexcept { return values_per_image_; }

  const Variable& weight() const noexcept { return weight_; }
  const Variable& bias() const noexcept { return bias_; }
  const Variable& running_mean() const noexcept { return running_mean_; }
  const Variable& running_var() const noexcept { return running_var_; }

 protected:
  void reset_own_parameters(Philox& random) override;

 private:
  ops::BatchNormOptions op_options();
  template <class Forward>
  Variable run(const Variable& x, const Forward& forward);

  std::int64_t channels_;
  std::int64_t values_per_image_ = 0;
  BatchNormOptions options_;
  ops::BatchNormExchange exchange_;
  Variable weight_, bias_, running_mean_, running_var_;
};

// All batch norm layers of a model with their paths ("stage1.0.norm1"; "" for the model itself), in forward order.
std::vector<std::pair<std::string, BatchNorm2d*>> batch_norms_of(Module& model);

// The first batch norm that one image of shape (H,W,C) leaves with a single value per channel, so that it cannot train
// on a batch of one: its path and description; empty if there is none. Runs the model in evaluation mode on one image
// of zeros, on the device of its parameters; modes, statistics and random streams stay. Throws: what the model throws.
std::string batch_norm_with_one_value(Module& model, const Shape& image);

// Synchronises all batch norm layers of a model while it lives; the communicator must live as long.
class SynchronisedBatchNorms {
 public:
  // BatchNormExchange::gather, told the layer's path too.
  using Gather = std::function<void(const std::string& layer, ops::BatchNormPass pass, const Tensor& own, Tensor& all)>;

  SynchronisedBatchNorms(Module& model, comm::Communicator& communicator);
  ~SynchronisedBatchNorms();
  SynchronisedBatchNorms(const SynchronisedBatchNorms&) = delete;
  SynchronisedBatchNorms& operator=(const SynchronisedBatchNorms&) = delete;

  // Forward passes from now on, and the backward passes that belong to them, exchange by `gather`, for a check that
  // looks at what is exchanged or stands in for the other ranks; empty: by the communicator, as at first.
  void exchange_by(const Gather& gather);
  // The communicator's exchange.
  void gather(ops::BatchNormPass pass, const Tensor& own, Tensor& all) const;

 private:
  std::vector<std::pair<std::string, BatchNorm2d*>> layers_;
  comm::Communicator& communicator_;
};

}  // namespace heddle::nn
