#include "tools/bench/step_clock.h"

#include <algorithm>
#include <chrono>

namespace heddle::tools::bench {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr double StepSplit::*kParts[] = {&StepSplit::step, &StepSplit::compute, &StepSplit::exposed, &StepSplit::load,
                                         &StepSplit::hidden};

}  // namespace

StepClock::StepClock(std::function<double()> now) : now_(now ? std::move(now) : steady_seconds) {}

void StepClock::begin_step() {
  split_ = {};
  part_ = &StepSplit::compute;
  exchanged_nbytes_ = 0;
  step_begin_ = part_begin_ = now_();
}

void StepClock::change_to(double StepSplit::*part) {
  const double now = now_();
  split_.*part_ += now - part_begin_;
  part_ = part;
  part_begin_ = now;
}

StepSplit StepClock::end_step() {
  change_to(&StepSplit::compute);
  split_.step = part_begin_ - step_begin_;
  return split_;
}

void StepClock::exchange_begins(std::size_t nbytes) {
  exchanged_nbytes_ += nbytes;
  change_to(&StepSplit::exposed);
}

void StepClock::exchange_ends() { change_to(&StepSplit::compute); }

void StepClock::load_begins() { change_to(&StepSplit::load); }

void StepClock::load_ends() { change_to(&StepSplit::compute); }

StepSplit mean_of(const std::vector<StepSplit>& splits) {
  HEDDLE_CHECK(!splits.empty(), "no steps to average");
  StepSplit mean;
  for (const auto part : kParts) {
    for (const StepSplit& split : splits) mean.*part += split.*part;
    mean.*part /= static_cast<double>(splits.size());
  }
  return mean;
}

StepSplit middle_mean(std::vector<StepSplit> steps) {
  std::sort(steps.begin(), steps.end(), [](const StepSplit& a, const StepSplit& b) { return a.step < b.step; });
  const std::size_t outer = steps.size() / 4;
  return mean_of(
      {steps.begin() + static_cast<std::ptrdiff_t>(outer), steps.end() - static_cast<std::ptrdiff_t>(outer)});
}

}  // namespace heddle::tools::bench
