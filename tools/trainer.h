// Trains a model on a resident data set. train_step() is the map of the whole program; it is queued some steps ahead of
// the device (and on a GPU recorded and replayed), and what a step brought is read from its record when it is done.
// Prints nothing; the epoch loop around it is in training_run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/data/data_loader.h"
#include "engine/data/metrics.h"
#include "engine/nn/batch_norm.h"
#include "engine/nn/module.h"
#include "engine/nn/parameter_buffer.h"
#include "engine/nn/random_streams.h"
#include "engine/ops/ops.h"
#include "engine/optim/lr_schedule.h"
#include "engine/optim/optimizer.h"
#include "engine/step/status_block.h"
#include "engine/step/step_graph.h"
#include "nccl_comm/batch_cut.h"
#include "nccl_comm/data_parallel.h"
#include "nccl_comm/micro_shards.h"
#include "nccl_comm/parity_gate.h"
#include "tools/settings.h"

namespace heddle::tools {

// Steps queued ahead of the device: enough to hide the host, few enough to stop soon after a step that failed.
inline constexpr std::int64_t kMaxQueued = 8;

// Sums over the finished steps of one epoch.
struct EpochSums {
  data::RunningMetrics metrics;
  double seconds = 0.0;  // of training alone

  double images_per_second() const { return seconds > 0 ? static_cast<double>(metrics.samples()) / seconds : 0.0; }
};

// What one step of a full batch asks of a GPU.
struct StepWork {
  WorkCounts queued;                  // kernels and library calls, and the bytes that they touch
  std::optional<GraphSize> recorded;  // what the step's recording consists of, if there is one
};

// The loss was NaN or infinite. The weights are those before the step that met it.
class NonFiniteLoss : public Error {
 public:
  explicit NonFiniteLoss(const std::string& message) : Error(message) {}
};

// Is told what a rank's step does, by its thread: for measurements. On a GPU what is recorded tells it only when it is
// recorded.
class StepObserver : public comm::ExchangeObserver {
 public:
  // The batch is put together.
  virtual void load_begins() = 0;
  virtual void load_ends() = 0;
};

// How a training with these settings cuts its batches.
comm::BatchCut batch_cut(const Settings& settings, int ranks);

class Trainer {
 public:
  // Model, data and communicator must outlive it. With a communicator this is one rank's part of a data-parallel
  // training: all ranks make the same calls, each has a replica of the model, and begins with rank 0's weights.
  // make_replica: makes another model of the same kind; needed for --reproducible alone.
  // Throws: InvalidArgument if model, data and settings do not fit; NotSupported if the model cannot be trained
  // reproducibly; with a communicator CommError, here and below.
  Trainer(const Settings& settings, nn::Module& model, const data::ResidentDataset& train,
          const data::DataLoaderOptions& normalisation, comm::Communicator* communicator = nullptr,
          const comm::ModelFactory& make_replica = {});

  // The parity gate: whether a step of all ranks is that of one rank. Before the first step or between two epochs;
  // everything is afterwards what it was. All ranks call it; without a communicator there is nothing to check.
  // Throws: CommError on all ranks: what differs, and by how much.
  comm::ParityResult check_parity();
  // Waits for the queued steps, then makes running statistics, which each rank moves by its own share of the images,
  // the mean of all ranks', as they are evaluated and saved. All ranks call it at the same place.
  void settle_buffers();
  // Waits for the queued steps, then compares weights, optimiser state and counters of all ranks bit for bit, and
  // running statistics too where no rank has its own (with_buffers: settle_buffers() was called just before). Returns
  // what differs and on which ranks, the same text on all; empty if nothing. All ranks call it at the same place.
  std::string compare_replicas(bool with_buffers = false);
  // Puts loader and learning rates where the state says, for a new epoch or the middle of one.
  void start_epoch();
  // Queues the next step (or steps, if several are launched at once) and counts those that are finished; false at the
  // end of the epoch, when all are. On a CPU it returns when the step is done. Throws: NonFiniteLoss, as the next.
  bool advance();
  // Waits until all queued steps are finished and counted.
  void finish_steps();
  // Counts the epoch as finished; sums start anew.
  void finish_epoch();

  // Where the run is, by finished steps: what a checkpoint holds besides tensors, together with the sums of the epoch
  // that runs. Both are the device's own position only after finish_steps().
  checkpoint::TrainingState& state() noexcept { return state_; }
  const checkpoint::TrainingState& state() const noexcept { return state_; }
  EpochSums& sums() noexcept { return sums_; }
  const EpochSums& sums() const noexcept { return sums_; }
  nn::Module& model() noexcept { return model_; }
  optim::Optimizer& optimizer() noexcept { return *optimizer_; }
  // Null unless the training is reproducible.
  comm::MicroShards* micro_shards() noexcept { return shards_.get(); }
  std::int64_t batches_per_epoch() const { return loader_.batches_per_epoch(); }
  // Steps that were queued, finished or not; the same on all ranks after the same calls.
  std::int64_t queued_steps() const noexcept { return state_.step + status_.queued(); }
  // Of the last finished step.
  double learning_rate() const { return schedule_.at_step(std::max<std::int64_t>(state_.step - 1, 0)); }
  // Nothing on a device that counts no work, as a CPU, and before the first step.
  std::optional<StepWork> step_work() const;
  // Null, as at first: nobody is told. It must live until the next call.
  void observe(StepObserver* observer);
  // CRC-32 of all weights.
  std::uint32_t weights_crc32() const;

 private:
  void train_step(std::int64_t images);
  // The parts of train_step(): this rank's sums, their exchange, the sums of all ranks, and the step that they give.
  void compute_gradients(std::int64_t images);
  void compute_micro_shards(std::int64_t images);
  void exchange();
  void finish_sums();
  void update();
  Variable compute_loss(const data::Batch& batch);
  bool buffers_are_shared() const noexcept { return shards_ != nullptr || synchronised_ != nullptr; }
  // Puts the loaders at a batch of the epoch.
  void start_order(std::int64_t batch);
  // Where the exchange between ranks cannot be recorded, what is before and after it is. Returns steps done. Throws:
  // CommError if the group has ended.
  std::int64_t run_steps(std::int64_t images, std::int64_t wanted);
  // Counts finished steps, and waits for some if `room` more could not be queued.
  void read_records(std::int64_t room);
  void count(const StatusRecord& record);
  [[noreturn]] void stop_non_finite() const;

  nn::Module& model_;
  std::int64_t batch_size_;
  std::int64_t accumulate_;
  nn::ParameterBuffer parameters_;
  comm::Communicator* communicator_;  // null: one rank
  DType reduce_dtype_;
  std::unique_ptr<comm::DataParallel> parallel_;  // the same
  comm::BatchCut cut_;
  std::unique_ptr<nn::SynchronisedBatchNorms> synchronised_;  // null: each rank's batch norms see its share alone
  data::DataLoader loader_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  nn::RandomStreams random_;
  std::unique_ptr<comm::MicroShards> shards_;    // null: not reproducible
  std::vector<data::DataLoader> shard_loaders_;  // one for each micro-shard of this rank
  std::int64_t steps_per_launch_;
  step::StepGraph graph_;
  step::StatusReader status_;
  optim::LrSchedule schedule_;
  ops::CrossEntropyOptions loss_options_;
  optim::StepOptions step_options_;
  checkpoint::TrainingState state_;
  EpochSums sums_;
  WorkCounts step_work_;  // of the latest full batch that was called or recorded
  StepObserver* observer_ = nullptr;
  double last_finite_loss_ = 0.0;
  bool had_finite_loss_ = false;
};

}  // namespace heddle::tools
