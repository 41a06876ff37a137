// The same training with the library: one rank a device, and DataParallel between backward() and the update.
#include <heddle/heddle.h>

#include <optional>

#include "training.h"

namespace comm = heddle::comm;
namespace nn = heddle::nn;
namespace ops = heddle::ops;
using heddle::Device;
using heddle::Variable;

namespace {

// Ranks on one GPU queue their work on streams of their own: what one recorded must not hold what another one queued.
class OwnStream {
 public:
  explicit OwnStream(Device device)
      : stream_(device.is_cpu() ? heddle::Stream{} : heddle::runtime_for(device).create_stream()) {
    if (!device.is_cpu()) guard_.emplace(stream_);
  }
  ~OwnStream() {
    if (stream_.device.is_cpu()) return;
    guard_.reset();
    heddle::runtime_for(stream_.device).destroy_stream(stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  heddle::Stream stream_;
  std::optional<heddle::StreamGuard> guard_;
};

}  // namespace

std::shared_ptr<nn::Module> make_lenet() {
  const nn::Pool2dOptions pool{.kernel_size = 2};
  const std::vector<std::shared_ptr<nn::Module>> layers = {
      std::make_shared<nn::Conv2d>(1, 20, nn::Conv2dOptions{.kernel_size = 3}),
      std::make_shared<nn::ReLU>(),
      std::make_shared<nn::AvgPool2d>(pool),
      std::make_shared<nn::Conv2d>(20, 50, nn::Conv2dOptions{.kernel_size = 5}),
      std::make_shared<nn::ReLU>(),
      std::make_shared<nn::AvgPool2d>(pool),
      std::make_shared<nn::Flatten>(),
      std::make_shared<nn::Linear>(800, 128),
      std::make_shared<nn::ReLU>(),
      std::make_shared<nn::Linear>(128, 10),
  };
  auto model = std::make_shared<nn::Sequential>(layers, 1);
  heddle::Philox random(1);
  model->reset_parameters(random);
  return model;
}

std::vector<float> values_of(const Parameters& parameters) {
  std::vector<float> all;
  for (const Variable& w : parameters) {
    const std::vector<float> values = w.data().to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

Parameters parameters_of(const nn::Module& model) {
  Parameters parameters;
  for (const nn::NamedVariable& named : model.named_parameters()) parameters.push_back(named.variable);
  return parameters;
}

Outcome train_with_library(const Options& options, const std::vector<Images>& batches,
                           const std::vector<Device>& devices) {
  Outcome outcome;
  outcome.weights.resize(devices.size());
  comm::run_rank_threads(options.devices, {}, [&](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Device device = devices[rank];
    const OwnStream stream(device);
    const std::shared_ptr<nn::Module> model = make_lenet();
    model->to(device);
    nn::ParameterBuffer parameters(*model);
    heddle::optim::Sgd optimizer(parameters, kLearningRate);
    comm::DataParallel parallel(*model, parameters, communicator);
    ops::CrossEntropyOptions loss_options;
    loss_options.reduction = ops::Reduction::sum;
    loss_options.stats = parameters.tail();
    for (const Images& batch : batches) {
      const Images shard = split_batch(batch, devices)[rank];
      optimizer.zero_grad();
      if (shard.labels.numel() > 0) {
        heddle::backward(ops::cross_entropy(model->forward(shard.pixels), shard.labels, loss_options), parallel.hook());
      }
      parallel.finish();
      optimizer.step({.divide_by_weight_sum = true});
      if (rank != 0) continue;
      if (outcome.first_step.empty()) outcome.first_step = values_of(parameters_of(*model));
      heddle::data::RunningMetrics metrics;  // the tail has the sums of all ranks
      metrics.add(parameters.tail().read());
      outcome.loss = metrics.loss();
    }
    outcome.weights[rank] = values_of(parameters_of(*model));
  });
  return outcome;
}
