#include "engine/optim/optimizer.h"

#include <cmath>
#include <limits>

namespace heddle::optim {

std::vector<SegmentRange> select_parameters(const nn::ParameterBuffer& parameters,
                                            const std::function<bool(const nn::ParameterSegment&)>& wanted) {
  std::vector<SegmentRange> ranges;
  const auto& segments = parameters.segments();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (!wanted(segments[i])) continue;
    if (!ranges.empty() && ranges.back().last == i) {
      ++ranges.back().last;
    } else {
      ranges.push_back({i, i + 1});
    }
  }
  return ranges;
}

Optimizer::Optimizer(nn::ParameterBuffer& parameters, double learning_rate)
    : parameters_(parameters),
      state_(parameters.device()),
      scalars_(Tensor::zeros({step_scalar::kCount}, DType::f32, parameters.device())) {
  set_learning_rate(learning_rate);
}

Optimizer::~Optimizer() = default;

void Optimizer::set_learning_rate(double value) {
  if (has_one_rate_ && value == learning_rate_) return;
  set_learning_rates({&value, 1});
}

void Optimizer::set_learning_rates(std::span<const double> values) {
  for (const double value : values) {
    HEDDLE_CHECK(std::isfinite(value) && value >= 0, "learning rate ", value, " is not a finite number >= 0");
  }
  state_.set_learning_rates(values);
  state_.set(step_slot::kBatch, 0);
  learning_rate_ = values.front();
  has_one_rate_ = values.size() == 1;
}

void Optimizer::step(const StepOptions& options) {
  HEDDLE_CHECK(options.max_gradient_norm >= 0, "max_gradient_norm ", options.max_gradient_norm, " is negative");
  HEDDLE_CHECK(!options.divide_by_weight_sum || parameters_.tail().has_sums(), name(),
               ": step() is to divide by the weight sum, but no loss has left one in the parameter buffer's tail since "
               "zero_grad(); give CrossEntropyOptions::stats, or leave divide_by_weight_sum out");
  prepared_ = options.want_gradient_norm || options.max_gradient_norm > 0;
  // Gradients that are known without having been written cost no kernel of their own, unless one reads all before.
  std::vector<GradientSource> known;
  if (prepared_) {
    parameters_.finish_gradients();
  } else {
    known = parameters_.finish_gradients_but_known(updated_);
  }
  const UpdateParams params{.divide_by_weight_sum = options.divide_by_weight_sum,
                            .halt_on_non_finite = options.halt_on_non_finite,
                            .average_decay = average_decay_};
  UpdateTensors tensors{
      .weights = parameters_.data(), .gradients = parameters_.gradients(), .tail = parameters_.tail().read()};
  tensors.averages = averages_;
  tensors.gradient_sources = known;
  if (prepared_) {
    backend_for(parameters_.device())
        .prepare_update(tensors.gradients, tensors.tail, options.max_gradient_norm, params, state_, scalars_);
    tensors.scalars = scalars_;
  }
  update(tensors, params);
}

void Optimizer::average_weights(double decay) {
  HEDDLE_CHECK(decay > 0 && decay < 1, name(), ": the averages' decay ", decay, " is not above 0 and below 1");
  // Recorded updates hold this memory.
  if (averages_.defined()) {
    averages_.copy_from(parameters_.data());
  } else {
    averages_ = parameters_.data().clone();
  }
  average_decay_ = decay;
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state_tensors() {
  std::vector<std::pair<std::string, Tensor>> tensors = own_state_tensors();
  if (averages_.defined()) tensors.emplace_back("average", averages_);
  return tensors;
}

double Optimizer::gradient_norm() const {
  return prepared_ ? scalars_.narrow(step_scalar::kGradientNorm, 1).item() : std::numeric_limits<double>::quiet_NaN();
}

void Optimizer::restore_counters(std::int64_t step_count, std::int64_t random_count, double learning_rate) {
  HEDDLE_CHECK(step_count >= 0 && random_count >= 0, "step count ", step_count, ", random count ", random_count,
               ": negative");
  set_learning_rate(learning_rate);
  state_.set(step_slot::kStep, step_count);
  state_.set(step_slot::kRandom, random_count);
  state_.set(step_slot::kHalted, 0);
  state_.set(step_slot::kSkipped, 0);
}

void Optimizer::check_groups(const std::vector<std::vector<SegmentRange>>& groups) {
  const std::size_t count = parameters_.segments().size();
  updated_.assign(count, false);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const SegmentRange& range : groups[g]) {
      HEDDLE_CHECK(range.first <= range.last && range.last <= count, name(), ": group ", g, " holds parameters [",
                   range.first, ", ", range.last, "), the model has ", count);
      for (std::size_t i = range.first; i < range.last; ++i) {
        HEDDLE_CHECK(!updated_[i], name(), ": parameter '", parameters_.segments()[i].name, "' is in two groups");
        updated_[i] = true;
      }
    }
  }
}

std::vector<Optimizer::FlatRange> Optimizer::live_ranges(const std::vector<SegmentRange>& ranges) const {
  std::vector<FlatRange> live;
  for (const SegmentRange& range : ranges) {
    for (std::size_t i = range.first; i < range.last; ++i) {
      const nn::ParameterSegment& segment = parameters_.segments()[i];
      if (!segment.variable.requires_grad()) continue;
      if (!live.empty() && live.back().begin + live.back().numel == segment.begin) {
        live.back().numel = segment.end - live.back().begin;
      } else {
        live.push_back({segment.begin, segment.end - segment.begin});
      }
    }
  }
  return live;
}

Tensor Optimizer::make_state() const {
  return Tensor::zeros(parameters_.data().shape(), DType::f32, parameters_.device());
}

}  // namespace heddle::optim
