// The epochs of a run: steps, evaluation, metrics, checkpoints, progress, and an orderly stop on a signal.
#pragma once

#include <string>

#include "tools/checkpoint_store.h"
#include "tools/console.h"
#include "tools/evaluation.h"
#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/run_folder.h"
#include "tools/trainer.h"

namespace heddle::tools {

// Borrowed parts; all outlive the run.
struct TrainingRunParts {
  const Settings& settings;
  Trainer& trainer;
  const data::ResidentDataset& test;
  RunFolder& folder;
  CheckpointStore& checkpoints;
  const InterruptWatch& interrupt;
  Console& out;
};

class TrainingRun {
 public:
  explicit TrainingRun(const TrainingRunParts& parts);

  // Trains up to --epochs. Returns the exit code: done, or interrupted and saved. Throws: NonFiniteLoss, whose message
  // names the last good checkpoint; IoError when something cannot be written.
  int run();

 private:
  // Steps of the epoch that runs; false if a signal came.
  bool train_epoch();
  Evaluation evaluate_epoch();
  void finish_epoch(const Evaluation& test);
  void show_progress(Progress::Clock::time_point now);
  int stop_interrupted();
  [[noreturn]] void fail_non_finite(const std::string& message);

  TrainingRunParts parts_;
  Progress progress_;
  Evaluator evaluator_;
  double evaluation_seconds_ = 0.0;  // of the last one
};

}  // namespace heddle::tools
