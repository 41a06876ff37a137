#include "engine/backend/step_state.h"

#include <algorithm>
#include <vector>

namespace heddle {
StepState::StepState(Device device)
    : counters_(Tensor::zeros({step_slot::kCount}, DType::i64, device)),
      learning_rates_(Tensor::zeros({1}, DType::f32, device)),
      ring_(runtime_for(device).allocate_host(sizeof(StatusRecord) * static_cast<std::size_t>(kStatusRecords))) {}

StepState::~StepState() {
  try {
    runtime_for(device()).synchronize(current_stream(device()));
  } catch (const Error&) {
    // The device has failed, so nothing runs on it any more; whoever waits for its results is told.
  }
}

void StepState::set_learning_rates(std::span<const double> rates) {
  HEDDLE_CHECK(!rates.empty(), "StepState: a list of learning rates is empty");
  const auto wanted = static_cast<std::int64_t>(rates.size());
  const std::int64_t count = std::max(wanted, learning_rates_.numel());
  std::vector<float> values(static_cast<std::size_t>(count), static_cast<float>(rates.back()));
  std::transform(rates.begin(), rates.end(), values.begin(), [](double rate) { return static_cast<float>(rate); });
  if (count > learning_rates_.numel()) {
    learning_rates_ = Tensor::from_values(values, {count}, device());
  } else {
    learning_rates_.copy_from(Tensor::from_values(values, {count}));
  }
}

void StepState::set(std::int64_t slot, std::int64_t value) {
  counters_.narrow(slot, 1).copy_from(Tensor::from_values<std::int64_t>({value}, {1}));
}

std::int64_t StepState::read(std::int64_t slot) const { return counters_.narrow(slot, 1).to_vector<std::int64_t>()[0]; }

}  // namespace heddle
