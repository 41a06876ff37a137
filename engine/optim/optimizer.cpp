#include "engine/optim/optimizer.h"

#include <cmath>

#include "engine/backend/backend.h"

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
      scalars_(Tensor::zeros({step_scalar::kCount}, DType::f32, parameters.device())),
      unit_tail_(Tensor::zeros({tail_slot::kCount}, DType::f32, parameters.device())) {
  set_learning_rate(learning_rate);
}

Optimizer::~Optimizer() = default;

void Optimizer::set_learning_rate(double value) {
  HEDDLE_CHECK(std::isfinite(value) && value >= 0, "learning rate ", value, " is not a finite number >= 0");
  learning_rate_ = value;
}

void Optimizer::step(const StepOptions& options) {
  HEDDLE_CHECK(options.max_gradient_norm >= 0, "max_gradient_norm ", options.max_gradient_norm, " is negative");
  parameters_.finish_gradients();
  Backend& backend = backend_for(parameters_.device());
  write_scalars();
  // A gradient that is to be used as it is, is one whose weight sum is 1.
  if (!options.divide_by_weight_sum) {
    unit_tail_.copy_from(parameters_.tail());
    Tensor weight_sum = unit_tail_.narrow(tail_slot::kWeightSum, 1);
    backend.fill(weight_sum, 1.0);
  }
  backend.prepare_update(parameters_.gradients(), options.divide_by_weight_sum ? parameters_.tail() : unit_tail_,
                         options.max_gradient_norm, options.want_gradient_norm || options.max_gradient_norm > 0,
                         scalars_);
  update(scalars_);
  if (!last_step_skipped()) ++step_count_;
}

void Optimizer::write_scalars() {
  Tensor host = scalars_.device().is_cpu() ? scalars_ : Tensor::zeros(scalars_.shape());
  float* const values = host.mutable_host_data<float>();
  values[step_scalar::kLearningRate] = static_cast<float>(learning_rate_);
  values[step_scalar::kStep] = static_cast<float>(step_count_ + 1);
  if (!scalars_.device().is_cpu()) scalars_.copy_from(host);
}

bool Optimizer::last_step_skipped() const { return scalars_.narrow(step_scalar::kSkip, 1).item() != 0; }

double Optimizer::gradient_norm() const { return scalars_.narrow(step_scalar::kGradientNorm, 1).item(); }

void Optimizer::restore_counters(std::int64_t step_count, double learning_rate) {
  HEDDLE_CHECK(step_count >= 0, "step count ", step_count, " is negative");
  set_learning_rate(learning_rate);
  step_count_ = step_count;
}

void Optimizer::check_groups(const std::vector<std::vector<SegmentRange>>& groups) const {
  const std::size_t count = parameters_.segments().size();
  std::vector<bool> taken(count, false);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const SegmentRange& range : groups[g]) {
      HEDDLE_CHECK(range.first <= range.last && range.last <= count, name(), ": group ", g, " holds parameters [",
                   range.first, ", ", range.last, "), the model has ", count);
      for (std::size_t i = range.first; i < range.last; ++i) {
        HEDDLE_CHECK(!taken[i], name(), ": parameter '", parameters_.segments()[i].name, "' is in two groups");
        taken[i] = true;
      }
    }
  }
}

std::vector<FlatRange> Optimizer::live_ranges(const std::vector<SegmentRange>& ranges) const {
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
