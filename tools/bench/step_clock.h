// Splits the time of a rank's training step into what the rank does in it. Knows nothing of the step.
#pragma once

#include <functional>
#include <vector>

#include "tools/trainer.h"

namespace heddle::tools::bench {

// Seconds of one step, or of several on average. step = compute + exposed + load.
struct StepSplit {
  double step = 0;
  double compute = 0;  // forward, backward, update, and what holds them together
  double exposed = 0;  // exchanging gradients, or waiting for a rank that is late, while nothing is computed
  double load = 0;     // waiting for the batch
  double hidden = 0;   // exchanges that ran while something was computed: inside `compute`
};

// Takes the time at each change from one to the other. Only where the host does the work itself: on a CPU, whose
// exchanges end before a call returns, so that none is hidden.
class StepClock final : public StepObserver {
 public:
  // Seconds since any point in the past; without it, those of the system's steady clock.
  explicit StepClock(std::function<double()> now = {});

  void begin_step();
  // Of what came since begin_step().
  StepSplit end_step();

  void exchange_begins(std::size_t nbytes) override;
  void exchange_ends() override;
  void load_begins() override;
  void load_ends() override;

  // Of the gradients that were exchanged in the step that ended last.
  std::size_t exchanged_nbytes() const noexcept { return exchanged_nbytes_; }

 private:
  void change_to(double StepSplit::*part);

  std::function<double()> now_;
  StepSplit split_;
  double StepSplit::*part_ = &StepSplit::compute;
  double step_begin_ = 0, part_begin_ = 0;
  std::size_t exchanged_nbytes_ = 0;
};

// Mean of each part, over ranks that do a step together or over several steps. Throws: InvalidArgument if there are
// none.
StepSplit mean_of(const std::vector<StepSplit>& splits);
// Mean of the middle half of the steps by their length, of which one that was disturbed is no part.
StepSplit middle_mean(std::vector<StepSplit> steps);

}  // namespace heddle::tools::bench
