#include "engine/nn/batch_norm.h"

#include <algorithm>
#include <functional>

#include "engine/autograd/node.h"
#include "engine/backend/backend.h"

namespace heddle::nn {
namespace {

void fill(Variable& v, double value) { backend_for(v.device()).fill(v.mutable_data(), value); }

// The module and all below it, parents first, each once.
void visit(Module& module, const std::string& path, std::vector<Module*>& seen,
           const std::function<void(Module&, const std::string&)>& fn) {
  if (std::find(seen.begin(), seen.end(), &module) != seen.end()) return;
  seen.push_back(&module);
  fn(module, path);
  for (const auto& [name, child] : module.named_children()) {
    visit(*child, path.empty() ? name : path + "." + name, seen, fn);
  }
}

void gather_ranks(comm::Communicator& communicator, ops::BatchNormPass pass, const Tensor& own, Tensor& all) {
  communicator.all_gather(own, all,
                          pass == ops::BatchNormPass::forward ? "batch norm statistics" : "batch norm gradients");
}

// Puts a model in evaluation mode while it lives, and each module back into its own mode.
class EvaluationScope {
 public:
  explicit EvaluationScope(Module& model) {
    std::vector<Module*> seen;
    visit(model, "", seen,
          [&](Module& module, const std::string&) { modes_.emplace_back(&module, module.is_training()); });
    model.train(false);
  }
  // From the whole to the parts, since train() changes those below too.
  ~EvaluationScope() {
    for (const auto& [module, training] : modes_) module->train(training);
  }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> modes_;
};

}  // namespace

BatchNorm2d::BatchNorm2d(std::int64_t channels, const BatchNormOptions& options)
    : channels_(channels), options_(options) {
  HEDDLE_CHECK(channels >= 1, description(), ": channels must be at least 1");
  HEDDLE_CHECK(options.eps > 0, description(), ": eps must be above 0");
  HEDDLE_CHECK(options.momentum >= 0 && options.momentum <= 1, description(), ": momentum must be in [0, 1]");
  weight_ = register_parameter("weight", {channels});
  bias_ = register_parameter("bias", {channels});
  running_mean_ = register_buffer("running_mean", Tensor::zeros({channels}));
  running_var_ = register_buffer("running_var", Tensor::empty({channels}));
  fill(running_var_, 1);
}

Variable BatchNorm2d::forward(const Variable& x) {
  return run(x, [&](const ops::BatchNormOptions& options) { return ops::batch_norm(x, weight_, bias_, options); });
}

Variable BatchNorm2d::forward_with_relu(const Variable& x) {
  return run(x, [&](const ops::BatchNormOptions& options) { return ops::batch_norm_relu(x, weight_, bias_, options); });
}

Variable BatchNorm2d::forward_with_add_relu(const Variable& x, const Variable& addend) {
  return run(x, [&](const ops::BatchNormOptions& options) {
    return ops::batch_norm_add_relu(x, addend, weight_, bias_, options);
  });
}

template <class Forward>
Variable BatchNorm2d::run(const Variable& x, const Forward& forward) {
  HEDDLE_CHECK(x.data().rank() >= 2 && x.dim(-1) == channels_, description(), ": x is ", x.shape(), ", expects ",
               channels_, " channels in the last of at least 2 dimensions");
  values_per_image_ = x.dim(0) == 0 ? 0 : x.numel() / x.dim(0) / channels_;
  try {
    return forward(op_options());
  } catch (const InvalidArgument& e) {
    throw InvalidArgument(join_text(description(), ": ", e.what()));
  }
}

ops::BatchNormOptions BatchNorm2d::op_options() {
  return {.training = is_training(),
          .running_mean = running_mean_.data(),
          .running_var = running_var_.data(),
          .momentum = options_.momentum,
          .eps = options_.eps,
          .exchange = exchange_};
}

FeatureMap BatchNorm2d::trace(const FeatureMap& input) {
  // Features of a flattened map are in another order in other programs; of one pixel there is but one order.
  HEDDLE_CHECK(input.channels == 0 || input.channels == channels_, description(), ": its input ",
               input.flattened ? "is a flattened map of " : "has ", input.channels, " channels",
               input.flattened ? "; put the batch norm before the Flatten" : "");
  FeatureMap output = input;
  if (!input.flattened) output.channels = channels_;
  return output;
}

void BatchNorm2d::synchronise(comm::Communicator* communicator) {
  exchange_ = {};
  if (communicator == nullptr) return;
  exchange_.ranks = communicator->world_size();
  exchange_.gather = [communicator](ops::BatchNormPass pass, const Tensor& own, Tensor& all) {
    gather_ranks(*communicator, pass, own, all);
  };
}

std::string BatchNorm2d::description() const {
  return join_text("BatchNorm2d(", channels_, ", eps=", options_.eps, ", momentum=", options_.momentum, ")");
}

void BatchNorm2d::reset_own_parameters(Philox&) {
  fill(weight_, 1);
  fill(bias_, 0);
  fill(running_mean_, 0);
  fill(running_var_, 1);
}

std::vector<std::pair<std::string, BatchNorm2d*>> batch_norms_of(Module& model) {
  std::vector<std::pair<std::string, BatchNorm2d*>> layers;
  std::vector<Module*> seen;
  visit(model, "", seen, [&](Module& module, const std::string& path) {
    if (auto* const norm = dynamic_cast<BatchNorm2d*>(&module)) layers.emplace_back(path, norm);
  });
  return layers;
}

std::string batch_norm_with_one_value(Module& model, const Shape& image) {
  const auto layers = batch_norms_of(model);
  if (layers.empty()) return {};
  const EvaluationScope evaluation(model);
  const NoGradGuard no_grad;
  std::vector<std::int64_t> batch{1};
  batch.insert(batch.end(), image.dims().begin(), image.dims().end());
  model.forward(Tensor::zeros(Shape(batch), DType::f32, layers.front().second->weight().device()));
  for (const auto& [path, norm] : layers) {
    if (norm->values_per_image() == 1) return join_text("'", path, "' ", norm->description());
  }
  return {};
}

SynchronisedBatchNorms::SynchronisedBatchNorms(Module& model, comm::Communicator& communicator)
    : layers_(batch_norms_of(model)), communicator_(communicator) {
  exchange_by({});
}

SynchronisedBatchNorms::~SynchronisedBatchNorms() {
  for (const auto& [path, norm] : layers_) norm->synchronise(nullptr);
}

void SynchronisedBatchNorms::exchange_by(const Gather& gather) {
  for (const auto& [path, norm] : layers_) {
    norm->synchronise(&communicator_);
    if (!gather) continue;
    norm->synchronise({.ranks = communicator_.world_size(),
                       .gather = [gather, layer = path](ops::BatchNormPass pass, const Tensor& own, Tensor& all) {
                         gather(layer, pass, own, all);
                       }});
  }
}

void SynchronisedBatchNorms::gather(ops::BatchNormPass pass, const Tensor& own, Tensor& all) const {
  gather_ranks(communicator_, pass, own, all);
}

}  // namespace heddle::nn
