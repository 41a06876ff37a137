// Learning rates as pure functions of the position in the run, so that a resumed run needs only its counters.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace heddle::optim {

enum class ScheduleKind : std::uint8_t { constant, step, cosine };

// "constant", "step", "cosine"; and back. Throws: InvalidArgument with the nearest known name.
const char* name_of(ScheduleKind kind) noexcept;
ScheduleKind schedule_from_name(std::string_view name);

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::constant;
  double learning_rate = 0.1;            // the peak
  double min_learning_rate = 0.0;        // cosine: where it ends
  double warmup_epochs = 0.0;            // may be a fraction
  std::int64_t total_epochs = 1;         // cosine: epochs of the whole run
  std::int64_t step_size = 0;            // step: epochs between drops; 0: use the milestones
  std::vector<std::int64_t> milestones;  // step: epochs (from 0) that begin with a drop, ascending
  double gamma = 0.1;                    // step: factor of a drop
  std::int64_t steps_per_epoch = 1;
};

// Checks once, then answers for any step.
class LrSchedule {
 public:
  // Throws: InvalidArgument naming the option that is out of range.
  explicit LrSchedule(ScheduleOptions options);

  // The rate of update number `step`, counted from 0 over the whole run. Warm-up is linear: the first update has
  // rate/W, update W-1 and later have the full rate, W = warmup_epochs * steps_per_epoch rounded.
  // constant: learning_rate. step: times gamma^(drops so far), by whole epochs. cosine: after the warm-up from
  // learning_rate at its end to min_learning_rate at the end of the last epoch, half a cosine; then it stays there.
  // Source: Loshchilov and Hutter, "SGDR", ICLR 2017, equation 5; Goyal et al., arXiv:1706.02677, section 2.2.
  double at_step(std::int64_t step) const;
  // The rate at the beginning of an epoch (from 0).
  double at_epoch(std::int64_t epoch) const;
  const ScheduleOptions& options() const noexcept { return options_; }

 private:
  ScheduleOptions options_;
  std::int64_t warmup_steps_ = 0;
};

}  // namespace heddle::optim
