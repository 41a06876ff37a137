// The epochs of a run: steps, evaluation, metrics, checkpoints, progress, and an orderly stop on a signal.
#pragma once

#include <optional>
#include <string>

#include "tools/checkpoint_store.h"
#include "tools/console.h"
#include "tools/evaluation.h"
#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/run_folder.h"
#include "tools/stop_agreement.h"
#include "tools/trainer.h"

namespace heddle::tools {

// What the rank that reports has: rank 0, or the only one. Borrowed.
struct RunReport {
  RunFolder& folder;
  CheckpointStore& checkpoints;
  Console& out;
};

// Borrowed parts; all outlive the run.
struct TrainingRunParts {
  const Settings& settings;
  Trainer& trainer;
  Evaluator& evaluator;  // on the test images
  const InterruptWatch& interrupt;
  StopAgreement& stop;
  comm::Communicator* communicator = nullptr;  // null: one rank
  RunReport* report = nullptr;                 // null: another rank reports
};

// The ranks have different weights, optimiser states or counters.
class ReplicasDiffer : public Error {
 public:
  explicit ReplicasDiffer(const std::string& message) : Error(message) {}
};

class TrainingRun {
 public:
  explicit TrainingRun(const TrainingRunParts& parts);

  // Trains up to --epochs. Returns the exit code: done, or interrupted and saved. Throws: NonFiniteLoss and
  // ReplicasDiffer, whose messages name the last checkpoint; IoError when something cannot be written.
  int run();

 private:
  // Steps of the epoch that runs; false if a signal came.
  bool train_epoch();
  Evaluation evaluate_epoch();
  void finish_epoch(const Evaluation& test);
  void show_progress_if_due();
  int stop_interrupted();
  void save_interrupted(const char* signal_name);
  // The drift monitor: after every --check-replicas steps, and before anything is saved.
  void check_replicas_if_due();
  // settled: the buffers are those of all ranks, too.
  void check_replicas(bool settled);
  // "; the last good checkpoint is PATH", for a message.
  std::string last_checkpoint() const;

  int rank() const noexcept { return parts_.communicator == nullptr ? 0 : parts_.communicator->rank(); }
  void clear_progress();

  TrainingRunParts parts_;
  std::optional<Progress> progress_;  // of the rank that reports
  double evaluation_seconds_ = 0.0;   // of the last one
};

}  // namespace heddle::tools
