#include "engine/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "engine/core/error.h"
#include "engine/core/text.h"

namespace heddle::optim {
namespace {
constexpr std::int64_t kMostSteps = std::numeric_limits<std::int64_t>::max();
}  // namespace

const char* name_of(ScheduleKind kind) noexcept {
  switch (kind) {
    case ScheduleKind::constant: return "constant";
    case ScheduleKind::step: return "step";
    case ScheduleKind::cosine: return "cosine";
  }
  return "?";
}

ScheduleKind schedule_from_name(std::string_view name) {
  std::vector<std::string> known;
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::step, ScheduleKind::cosine}) {
    if (name == name_of(kind)) return kind;
    known.emplace_back(name_of(kind));
  }
  throw InvalidArgument(unknown_name_message("schedule", name, known));
}

LrSchedule::LrSchedule(ScheduleOptions options) : options_(std::move(options)) {
  const auto& o = options_;
  const auto is_rate = [](double x) { return std::isfinite(x) && x >= 0; };
  HEDDLE_CHECK(is_rate(o.learning_rate), "schedule: learning rate ", o.learning_rate, " is not a finite number >= 0");
  HEDDLE_CHECK(is_rate(o.min_learning_rate) && o.min_learning_rate <= o.learning_rate,
               "schedule: smallest learning rate ", o.min_learning_rate, " is outside [0, ", o.learning_rate, "]");
  HEDDLE_CHECK(is_rate(o.gamma), "schedule: gamma ", o.gamma, " is not a finite number >= 0");
  HEDDLE_CHECK(o.steps_per_epoch >= 1, "schedule: ", o.steps_per_epoch, " steps per epoch");
  HEDDLE_CHECK(is_rate(o.warmup_epochs) && o.warmup_epochs <= 1e9, "schedule: ", o.warmup_epochs, " warm-up epochs");
  warmup_steps_ = std::llround(o.warmup_epochs * static_cast<double>(o.steps_per_epoch));
  if (o.kind == ScheduleKind::step) {
    HEDDLE_CHECK(o.step_size >= 0, "schedule: step size ", o.step_size, " is negative");
    HEDDLE_CHECK((o.step_size > 0) != !o.milestones.empty(),
                 "schedule: a step schedule needs a step size or milestones, ", "one of the two; step size is ",
                 o.step_size, ", there are ", o.milestones.size(), " milestones");
    HEDDLE_CHECK(std::is_sorted(o.milestones.begin(), o.milestones.end()), "schedule: the milestones do not ascend");
  }
  if (o.kind == ScheduleKind::cosine) {
    HEDDLE_CHECK(o.total_epochs >= 1, "schedule: ", o.total_epochs, " epochs");
    HEDDLE_CHECK(o.total_epochs <= kMostSteps / o.steps_per_epoch, "schedule: ", o.total_epochs, " epochs of ",
                 o.steps_per_epoch, " steps are more steps than 64 bits can count");
    HEDDLE_CHECK(o.warmup_epochs <= static_cast<double>(o.total_epochs), "schedule: ", o.warmup_epochs,
                 " warm-up epochs in a run of ", o.total_epochs);
  }
}

double LrSchedule::at_step(std::int64_t step) const {
  const auto& o = options_;
  HEDDLE_CHECK(step >= 0, "schedule: step ", step, " is negative");
  double rate = o.learning_rate;
  if (o.kind == ScheduleKind::step) {
    const std::int64_t epoch = step / o.steps_per_epoch;
    const std::int64_t drops =
        o.step_size > 0 ? epoch / o.step_size
                        : std::upper_bound(o.milestones.begin(), o.milestones.end(), epoch) - o.milestones.begin();
    rate *= std::pow(o.gamma, static_cast<double>(drops));
  }
  if (step < warmup_steps_) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  if (o.kind == ScheduleKind::cosine) {
    const std::int64_t total = o.total_epochs * o.steps_per_epoch;
    const std::int64_t length = std::max<std::int64_t>(total - warmup_steps_, 1);
    const double done = std::min(1.0, static_cast<double>(step - warmup_steps_) / static_cast<double>(length));
    rate =
        o.min_learning_rate + 0.5 * (o.learning_rate - o.min_learning_rate) * (1 + std::cos(std::numbers::pi * done));
  }
  return rate;
}

double LrSchedule::at_epoch(std::int64_t epoch) const {
  HEDDLE_CHECK(epoch >= 0 && epoch <= kMostSteps / options_.steps_per_epoch, "schedule: epoch ", epoch, " of ",
               options_.steps_per_epoch, " steps; needs 0 to ", kMostSteps / options_.steps_per_epoch);
  return at_step(epoch * options_.steps_per_epoch);
}

}  // namespace heddle::optim
