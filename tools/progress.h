// Shows how far a training run is: a bar on a terminal, whole plain lines everywhere else.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tools/console.h"

namespace heddle::tools {

// Where a run is, at a moment.
struct ProgressState {
  std::int64_t epoch = 1;  // from 1
  std::int64_t epochs = 1;
  std::int64_t batch = 0;  // done in this epoch
  std::int64_t batches = 1;
  double loss = 0.0;      // mean over the epoch so far
  double accuracy = 0.0;  // share of right answers in the epoch so far
  double images_per_second = 0.0;
  double seconds_left = 0.0;  // of the whole run
};

// "1:02:03", "4:05".
std::string format_duration(double seconds);
// One line without its end, at most `width` characters; less important parts are left out where there is no room.
std::string format_bar(const ProgressState& state, int width);
std::string format_plain(const ProgressState& state);

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(Console& console) : console_(console) {}

  void start_epoch();
  // True if update() would show something now; cheap enough to be asked after each step.
  bool is_due(Clock::time_point now) const noexcept { return now >= next_; }
  // Redraws the bar (ten times a second at most) or writes a line (every ten seconds; less often in an epoch that got
  // more than a hundred).
  void update(const ProgressState& state, Clock::time_point now);
  // Takes the bar away, before other lines are written.
  void clear();

 private:
  Console& console_;
  Clock::time_point next_{};
  int lines_in_epoch_ = 0;
  bool bar_visible_ = false;
};

}  // namespace heddle::tools
