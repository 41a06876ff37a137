#include "engine/optim/adam.h"

#include <cmath>

namespace heddle::optim {
namespace {

std::vector<Adam::Group> one_group(const nn::ParameterBuffer& parameters, const AdamParams& params) {
  return {{{{0, parameters.segments().size()}}, params}};
}

std::vector<Adam::Group> decoupled(std::vector<Adam::Group> groups) {
  for (Adam::Group& group : groups) group.params.decoupled = true;
  return groups;
}

}  // namespace

Adam::Adam(nn::ParameterBuffer& parameters, double learning_rate, const AdamParams& params)
    : Adam(parameters, learning_rate, one_group(parameters, params)) {}

Adam::Adam(nn::ParameterBuffer& parameters, double learning_rate, std::span<const Group> groups)
    : Optimizer(parameters, learning_rate), groups_(groups.begin(), groups.end()) {
  std::vector<std::vector<SegmentRange>> ranges;
  for (const Group& group : groups_) {
    const AdamParams& p = group.params;
    HEDDLE_CHECK(p.beta1 >= 0 && p.beta1 < 1, "adam: beta1 ", p.beta1, " is outside [0, 1)");
    HEDDLE_CHECK(p.beta2 >= 0 && p.beta2 < 1, "adam: beta2 ", p.beta2, " is outside [0, 1)");
    HEDDLE_CHECK(std::isfinite(p.eps) && p.eps >= 0, "adam: eps ", p.eps, " is not a finite number >= 0");
    HEDDLE_CHECK(std::isfinite(p.weight_decay) && p.weight_decay >= 0, "adam: weight decay ", p.weight_decay,
                 " is not a finite number >= 0");
    HEDDLE_CHECK(std::isfinite(p.learning_rate_scale) && p.learning_rate_scale >= 0, "adam: learning rate scale ",
                 p.learning_rate_scale, " is not a finite number >= 0");
    ranges.push_back(group.ranges);
  }
  check_groups(ranges);
  first_moment_ = make_state();
  second_moment_ = make_state();
}

const char* Adam::name() const noexcept {
  return !groups_.empty() && groups_.front().params.decoupled ? "adamw" : "adam";
}

std::vector<std::pair<std::string, Tensor>> Adam::own_state_tensors() {
  return {{"first_moment", first_moment_}, {"second_moment", second_moment_}};
}

void Adam::update(UpdateTensors& tensors, const UpdateParams& params) {
  tensors.first_state = first_moment_;
  tensors.second_state = second_moment_;
  Backend& backend = backend_for(parameters_.device());
  const std::vector<AdamRange> ranges = live_ranges(groups_);
  for_each_call(std::span(ranges), params, [&](std::span<const AdamRange> now, const UpdateParams& call) {
    backend.adam_update(tensors, now, call, state_);
  });
}

AdamW::AdamW(nn::ParameterBuffer& parameters, double learning_rate, AdamParams params)
    : Adam(parameters, learning_rate, decoupled(one_group(parameters, params))) {}

AdamW::AdamW(nn::ParameterBuffer& parameters, double learning_rate, std::span<const Group> groups)
    : Adam(parameters, learning_rate, decoupled({groups.begin(), groups.end()})) {}

}  // namespace heddle::optim
