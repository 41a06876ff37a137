// What a training writes for TensorBoard while it runs: curves inside the epochs and at their ends, and pictures of
// each evaluation. Used by the rank that reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/evaluation.h"
#include "tools/events/event.h"
#include "tools/events/event_file.h"
#include "tools/model_description.h"
#include "tools/pictures/mistakes.h"
#include "tools/trainer.h"

namespace heddle::tools {

class TrainingEvents {
 public:
  // Begins an event file in the folder of a run. Throws: IoError.
  explicit TrainingEvents(const std::string& folder) : file_(folder) {}

  // The calls below throw IoError when the file cannot be written.

  // At the begin of an epoch, or where a resumed run continues it.
  void start_epoch(const Trainer& trainer);
  // After steps were finished; writes a point when enough of them were, or after five seconds: what was trained since
  // the last point.
  void after_steps(const Trainer& trainer);
  // What was trained since the last point, before the training stops inside an epoch.
  void write_rest(const Trainer& trainer);
  // The rest of the epoch, and its results; test: null after an epoch without evaluation. Before
  // Trainer::finish_epoch().
  void finish_epoch(const Trainer& trainer, const Evaluation* test);
  // Of the evaluation of this epoch; nothing without libpng.
  void add_pictures(std::int64_t step, const Evaluation& test, const std::vector<Mistake>& worst,
                    const ModelDescription& description);

 private:
  using Clock = std::chrono::steady_clock;
  void write_point(const Trainer& trainer);

  EventFile file_;
  std::int64_t steps_per_point_ = 1;
  // Where the last point was.
  std::int64_t last_step_ = 0;
  EpochSums last_sums_;
  Clock::time_point last_time_{};
};

}  // namespace heddle::tools
