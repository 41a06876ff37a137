// Trains a model on a resident data set, step by step. train_step() is the map of the whole program. Prints nothing;
// the epoch loop around it is in training_run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/data/data_loader.h"
#include "engine/data/metrics.h"
#include "engine/nn/module.h"
#include "engine/nn/parameter_buffer.h"
#include "engine/ops/ops.h"
#include "engine/optim/lr_schedule.h"
#include "engine/optim/optimizer.h"
#include "tools/settings.h"

namespace heddle::tools {

// Sums over the steps of one epoch.
struct EpochSums {
  data::RunningMetrics metrics;
  double seconds = 0.0;  // inside train_step()

  double images_per_second() const { return seconds > 0 ? static_cast<double>(metrics.samples()) / seconds : 0.0; }
};

// The loss was NaN or infinite. The weights are those before the step that met it.
class NonFiniteLoss : public Error {
 public:
  explicit NonFiniteLoss(const std::string& message) : Error(message) {}
};

class Trainer {
 public:
  // Both data sets and the model must outlive it. Throws: InvalidArgument if model, data and settings do not fit.
  Trainer(const Settings& settings, nn::Module& model, const data::ResidentDataset& train,
          const data::DataLoaderOptions& normalisation);

  // Puts the loader where the state says, for a new epoch or the middle of one.
  void start_epoch();
  // One update from the next batch; false at the end of the epoch. Throws: NonFiniteLoss.
  bool train_step();
  // Counts the epoch as finished; sums start anew.
  void finish_epoch();

  // Where the run is: what a checkpoint holds besides tensors, together with the sums of the epoch that runs.
  checkpoint::TrainingState& state() noexcept { return state_; }
  const checkpoint::TrainingState& state() const noexcept { return state_; }
  EpochSums& sums() noexcept { return sums_; }
  const EpochSums& sums() const noexcept { return sums_; }
  nn::Module& model() noexcept { return model_; }
  optim::Optimizer& optimizer() noexcept { return *optimizer_; }
  std::int64_t batches_per_epoch() const { return loader_.batches_per_epoch(); }
  // Of the last step.
  double learning_rate() const noexcept { return optimizer_->learning_rate(); }
  // CRC-32 of all weights.
  std::uint32_t weights_crc32() const;

 private:
  void count_step();
  [[noreturn]] void stop_non_finite() const;

  nn::Module& model_;
  nn::ParameterBuffer parameters_;
  data::DataLoader loader_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LrSchedule schedule_;
  ops::CrossEntropyOptions loss_options_;
  optim::StepOptions step_options_;
  checkpoint::TrainingState state_;
  EpochSums sums_;
  double last_finite_loss_ = 0.0;
  bool had_finite_loss_ = false;
};

}  // namespace heddle::tools
