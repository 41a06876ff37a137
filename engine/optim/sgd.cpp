#include "engine/optim/sgd.h"

#include <cmath>

namespace heddle::optim {
namespace {

std::vector<Sgd::Group> one_group(const nn::ParameterBuffer& parameters, const SgdParams& params) {
  return {{{{0, parameters.segments().size()}}, params}};
}

}  // namespace

Sgd::Sgd(nn::ParameterBuffer& parameters, double learning_rate, const SgdParams& params)
    : Sgd(parameters, learning_rate, one_group(parameters, params)) {}

Sgd::Sgd(nn::ParameterBuffer& parameters, double learning_rate, std::span<const Group> groups)
    : Optimizer(parameters, learning_rate), groups_(groups.begin(), groups.end()) {
  std::vector<std::vector<SegmentRange>> ranges;
  bool has_momentum = false;
  for (const Group& group : groups_) {
    const SgdParams& p = group.params;
    HEDDLE_CHECK(p.momentum >= 0 && p.momentum < 1, "sgd: momentum ", p.momentum, " is outside [0, 1)");
    HEDDLE_CHECK(std::isfinite(p.weight_decay) && p.weight_decay >= 0, "sgd: weight decay ", p.weight_decay,
                 " is not a finite number >= 0");
    HEDDLE_CHECK(std::isfinite(p.learning_rate_scale) && p.learning_rate_scale >= 0, "sgd: learning rate scale ",
                 p.learning_rate_scale, " is not a finite number >= 0");
    HEDDLE_CHECK(!p.nesterov || p.momentum > 0, "sgd: nesterov needs a momentum above 0");
    has_momentum = has_momentum || p.momentum > 0;
    ranges.push_back(group.ranges);
  }
  check_groups(ranges);
  if (has_momentum) velocity_ = make_state();
}

std::vector<std::pair<std::string, Tensor>> Sgd::own_state_tensors() {
  if (!velocity_.defined()) return {};
  return {{"momentum", velocity_}};
}

void Sgd::update(UpdateTensors& tensors, const UpdateParams& params) {
  tensors.first_state = velocity_;
  Backend& backend = backend_for(parameters_.device());
  const std::vector<SgdRange> ranges = live_ranges(groups_);
  for_each_call(std::span(ranges), params, [&](std::span<const SgdRange> now, const UpdateParams& call) {
    backend.sgd_update(tensors, now, call, state_);
  });
}

}  // namespace heddle::optim
