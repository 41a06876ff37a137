// Data-parallel training written by hand: every device has a copy of the parameters and works on its piece of the
// batch, the gradients are added up over the devices, and each device makes the same update.
#include <heddle/autograd/backward.h>
#include <heddle/autograd/node.h>
#include <heddle/ops/ops.h>

#include <cstdio>

#include "training.h"

namespace ops = heddle::ops;
using heddle::Device;
using heddle::Tensor;
using heddle::Variable;

std::vector<Images> split_batch(const Images& batch, const std::vector<Device>& devices) {
  const auto pieces = static_cast<std::int64_t>(devices.size());
  const std::int64_t n = batch.labels.numel();
  std::vector<Images> shards;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t begin = n * i / pieces, end = n * (i + 1) / pieces;
    const Device device = devices[static_cast<std::size_t>(i)];
    shards.push_back(
        {batch.pixels.narrow(begin, end - begin).to(device), batch.labels.narrow(begin, end - begin).to(device)});
  }
  return shards;
}

namespace {

// x (N,28,28,1) -> logits (N,10). The parameters are weight and bias of two convolutions and two linear layers.
Variable lenet(const Variable& x, const Parameters& p) {
  const Variable h1 = ops::avg_pool2d(ops::relu(ops::conv2d(x, p[0], p[1])));
  const Variable h2 = ops::avg_pool2d(ops::relu(ops::conv2d(h1, p[2], p[3])));
  const Variable h3 = ops::relu(ops::linear(ops::flatten(h2), p[4], p[5]));
  return ops::linear(h3, p[6], p[7]);
}

// A copy of the parameters on a device.
Parameters get_params(const Parameters& initial, Device device) {
  Parameters copies;
  for (const Variable& w : initial) copies.emplace_back(w.data().clone().to(device), true);
  return copies;
}

// Every tensor becomes the sum of all. They are handles: copy_from() writes into the memory that they name, while
// `data[i] = ...` would make the list name another one.
void allreduce(std::vector<Tensor>& data) {
  const heddle::NoGradGuard no_grad;
  for (std::size_t i = 1; i < data.size(); ++i) {
    data[0].copy_from((Variable(data[0]) + data[i].to(data[0].device())).data());
  }
  for (std::size_t i = 1; i < data.size(); ++i) data[i].copy_from(data[0]);
}

// The gradients are sums over images, so this is the step of the mean.
void sgd(Parameters& parameters, double learning_rate, std::int64_t batch_size) {
  const heddle::NoGradGuard no_grad;
  for (Variable& w : parameters) {
    const Variable step = Variable(w.grad()) * (learning_rate / static_cast<double>(batch_size));
    w.mutable_data().copy_from((w.detach() - step).data());
  }
}

// Returns the mean loss.
double train_batch(const Images& batch, std::vector<Parameters>& device_params, const std::vector<Device>& devices,
                   Fault fault) {
  const std::vector<Images> shards = split_batch(batch, devices);
  const std::int64_t batch_size = batch.labels.numel();
  ops::CrossEntropyOptions loss_options;
  loss_options.reduction = fault == Fault::mean_twice ? ops::Reduction::mean : ops::Reduction::sum;
  double loss_sum = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::int64_t images = shards[i].labels.numel();
    if (images == 0) continue;  // fewer images than devices: its gradient is zero
    const Variable loss = ops::cross_entropy(lenet(shards[i].pixels, device_params[i]), shards[i].labels, loss_options);
    heddle::backward(loss);
    loss_sum += loss.data().item() * static_cast<double>(loss_options.reduction == ops::Reduction::mean ? images : 1);
  }
  for (std::size_t k = 0; k < device_params[0].size(); ++k) {
    std::vector<Tensor> gradients;
    for (Parameters& parameters : device_params) gradients.push_back(parameters[k].grad());
    switch (fault) {
      case Fault::assign: allreduce_assigning(gradients); break;
      case Fault::copy: allreduce_copies(gradients); break;
      default: allreduce(gradients);
    }
  }
  for (std::size_t i = 0; i < device_params.size(); ++i) {
    if (i == 0 || fault != Fault::first_only) sgd(device_params[i], kLearningRate, batch_size);
    for (Variable& w : device_params[i]) w.zero_grad();
  }
  return loss_sum / static_cast<double>(batch_size);
}

}  // namespace

Outcome train_by_hand(const Options& options, const std::vector<Images>& batches, const std::vector<Device>& devices) {
  const Parameters initial = parameters_of(*make_lenet());
  std::vector<Parameters> device_params;
  for (const Device device : devices) device_params.push_back(get_params(initial, device));
  Outcome outcome;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    outcome.loss = train_batch(batches[i], device_params, devices, options.fault);
    if (i == 0) outcome.first_step = values_of(device_params[0]);
    if ((i + 1) % 5 == 0) std::printf("step %3zu  loss %.4f\n", i + 1, outcome.loss);
  }
  for (const Parameters& parameters : device_params) outcome.weights.push_back(values_of(parameters));
  return outcome;
}
