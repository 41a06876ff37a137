#include "tools/trainer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <chrono>
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/optim/adam.h"
#include "engine/optim/sgd.h"
#include "nccl_comm/average_buffers.h"
#include "nccl_comm/drift_monitor.h"

namespace heddle::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Pixels a random crop may move an image, as in the usual recipe for 28 to 32 pixels.
constexpr std::int64_t kCropPixels = 2;
// More steps than can be queued: a wait for the room waits for all.
constexpr std::int64_t kWaitForAll = kStatusRecords;
// Kinds of recorded work, for StepKey; 0 is a whole step.
constexpr std::uint32_t kGradients = 1, kUpdate = 2;

std::unique_ptr<optim::Optimizer> make_optimizer(const Settings& s, nn::ParameterBuffer& parameters) {
  if (s.optimizer == "sgd") {
    return std::make_unique<optim::Sgd>(
        parameters, s.lr, SgdParams{.momentum = s.momentum, .weight_decay = s.weight_decay, .nesterov = s.nesterov});
  }
  return std::make_unique<optim::Adam>(parameters, s.lr,
                                       AdamParams{.weight_decay = s.weight_decay, .decoupled = s.optimizer == "adamw"});
}

data::DataLoaderOptions loader_options(const Settings& s, data::DataLoaderOptions options,
                                       const comm::Communicator* communicator) {
  if (communicator != nullptr) {
    options.rank = communicator->rank();
    options.world_size = communicator->world_size();
  }
  options.batch_size = s.batch_size;
  options.shuffle = true;
  options.seed = static_cast<std::uint64_t>(s.seed);
  options.random_flip = s.augment != "none";
  options.random_crop = s.augment == "crop-flip" ? kCropPixels : 0;
  return options;
}

// Small models take less time on a GPU than a launch does.
constexpr std::int64_t kSmallModel = 1'000'000;  // parameters
constexpr std::int64_t kAutoSteps = 4;

std::int64_t steps_per_launch(const Settings& s, const nn::ParameterBuffer& parameters, bool exchanges) {
  if (exchanges) return 1;
  if (s.steps_per_launch > 0) return s.steps_per_launch;
  return parameters.segments().back().end <= kSmallModel ? kAutoSteps : 1;
}

optim::ScheduleOptions schedule_options(const Settings& s, std::int64_t batches_per_epoch) {
  return {.kind = optim::schedule_from_name(s.schedule),
          .learning_rate = s.lr,
          .warmup_epochs = s.warmup_epochs,
          .total_epochs = s.epochs,
          .step_size = s.schedule_step,
          .gamma = s.schedule_gamma,
          .steps_per_epoch = batches_per_epoch};
}

DType reduce_dtype(const Settings& s) { return s.reduce_dtype == "bf16" ? DType::bf16 : DType::f32; }

std::unique_ptr<comm::MicroShards> make_shards(const Settings& settings, nn::Module& model,
                                               nn::ParameterBuffer& parameters, optim::Optimizer& optimizer,
                                               const comm::ModelFactory& make_replica,
                                               comm::Communicator* communicator) {
  if (!settings.reproducible) return nullptr;
  HEDDLE_CHECK(make_replica != nullptr, "Trainer: a reproducible training needs make_replica");
  return std::make_unique<comm::MicroShards>(model, parameters, optimizer.state().address_of(step_slot::kRandom),
                                             make_replica, communicator);
}

bool synchronises(const Settings& settings, const comm::Communicator* communicator) {
  return settings.sync_bn && communicator != nullptr && communicator->world_size() > 1;
}

std::unique_ptr<nn::SynchronisedBatchNorms> synchronise(const Settings& settings, nn::Module& model,
                                                        comm::Communicator* communicator) {
  if (!synchronises(settings, communicator)) return nullptr;
  return std::make_unique<nn::SynchronisedBatchNorms>(model, *communicator);
}

// Longer than a rank may wait for another one, which has its own message.
std::chrono::milliseconds step_deadline(const Settings& settings, const comm::Communicator* communicator) {
  const std::chrono::milliseconds alone = step::StatusOptions{}.deadline;
  if (communicator == nullptr) return alone;
  return std::max(alone, std::chrono::milliseconds(static_cast<std::int64_t>(settings.comm_timeout * 1000) + 10'000));
}

WorkCounts difference(const WorkCounts& after, const WorkCounts& before) {
  return {.launches = after.launches - before.launches,
          .read_nbytes = after.read_nbytes - before.read_nbytes,
          .written_nbytes = after.written_nbytes - before.written_nbytes};
}

}  // namespace

comm::BatchCut batch_cut(const Settings& settings, int ranks) {
  if (settings.reproducible) return {.shares = comm::kMicroShards};
  return {.shares = ranks, .pieces = settings.accumulate, .synchronised = settings.sync_bn && ranks > 1};
}

Trainer::Trainer(const Settings& settings, nn::Module& model, const data::ResidentDataset& train,
                 const data::DataLoaderOptions& normalisation, comm::Communicator* communicator,
                 const comm::ModelFactory& make_replica)
    : model_(model),
      batch_size_(std::min(settings.batch_size, train.size())),
      accumulate_(settings.accumulate),
      parameters_(model),
      communicator_(communicator),
      reduce_dtype_(reduce_dtype(settings)),
      parallel_(communicator == nullptr
                    ? nullptr
                    : std::make_unique<comm::DataParallel>(model, parameters_, *communicator,
                                                           comm::DataParallelOptions{.reduce_dtype = reduce_dtype_})),
      cut_(batch_cut(settings, communicator == nullptr ? 1 : communicator->world_size())),
      synchronised_(synchronise(settings, model, communicator)),
      loader_(train, loader_options(settings, normalisation, communicator)),
      optimizer_(make_optimizer(settings, parameters_)),
      random_(model, optimizer_->state().address_of(step_slot::kRandom),
              communicator == nullptr ? 0 : communicator->rank()),
      shards_(make_shards(settings, model, parameters_, *optimizer_, make_replica, communicator)),
      steps_per_launch_(steps_per_launch(settings, parameters_, communicator != nullptr)),
      // What a synchronised batch norm exchanges is in the middle of a step: where that cannot be recorded, no step is.
      graph_(parameters_.device(), {.enabled = settings.graph && (!synchronised_ || communicator->can_be_recorded()),
                                    .steps_per_launch = steps_per_launch_}),
      status_(optimizer_->state(), {.max_queued = std::max(kMaxQueued, 2 * steps_per_launch_),
                                    .deadline = step_deadline(settings, communicator)}),
      schedule_(schedule_options(settings, loader_.batches_per_epoch())),
      loss_options_{
          .label_smoothing = settings.label_smoothing, .reduction = ops::Reduction::sum, .stats = parameters_.tail()},
      step_options_{
          .divide_by_weight_sum = true, .max_gradient_norm = settings.clip_grad_norm, .halt_on_non_finite = true},
      state_{
          .model = settings.model, .total_epochs = settings.epochs, .seed = static_cast<std::uint64_t>(settings.seed)} {
  // After the weights came from rank 0.
  if (settings.ema > 0) optimizer_->average_weights(settings.ema);
  if (!shards_) return;
  for (int i = 0; i < shards_->range().size(); ++i) {
    shard_loaders_.emplace_back(loader_, shards_->shard(i).index, comm::kMicroShards);
  }
}

// Recorded on a GPU: then this runs for the first steps of a kind only, and nothing in it may depend on the step. What
// changes from step to step is read on the device: place in the order, learning rate, step number, random streams.
void Trainer::train_step(std::int64_t images) {
  const WorkCounts before = runtime_for(parameters_.device()).work_counts();
  compute_gradients(images);
  exchange();
  finish_sums();  // over all ranks
  update();
  if (images == batch_size_) step_work_ = difference(runtime_for(parameters_.device()).work_counts(), before);
}

void Trainer::compute_gradients(std::int64_t images) {
  if (shards_) return compute_micro_shards(images);
  random_.begin_step();     // layers draw from the step's streams
  optimizer_->zero_grad();  // marks leaves fresh, no kernel
  if (observer_ != nullptr) observer_->load_begins();
  const data::Batch batch = loader_.load(images);  // this rank's share: resident u8 -> normalised (B,H,W,C)
  if (observer_ != nullptr) observer_->load_ends();
  // Fewer images than ranks: one without joins the exchange with zeros. Fewer than pieces: as many pieces. Where batch
  // norms meet in every pass, all ranks make the same number of passes, some on no images.
  const std::int64_t pieces =
      synchronised_ ? comm::synchronised_pieces(images, cut_) : std::min(accumulate_, batch.size());
  const bool sends_in_pass = parallel_ && (!graph_.records() || communicator_->can_be_recorded());
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t begin = batch.size() * piece / pieces, end = batch.size() * (piece + 1) / pieces;
    const Variable loss =
        compute_loss({batch.images.narrow(begin, end - begin), batch.labels.narrow(begin, end - begin)});
    // Sums of gradients over the batch. With ranks a full bucket goes out at once, unless this is recorded without it.
    backward(loss, sends_in_pass && piece == pieces - 1 ? parallel_->hook() : LeafReadyHook());
  }
  // What the exchange finds must be written by this step itself, recorded or not: it asks for nothing more.
  if (parallel_ && !sends_in_pass) parameters_.finish_gradients();
}

void Trainer::compute_micro_shards(std::int64_t images) {
  shards_->compute([&](comm::MicroShard& shard) {
    const auto place = static_cast<std::size_t>(shard.index - shards_->range().begin);
    const data::Batch batch = shard_loaders_[place].load(images);  // by several threads: no observer is told
    if (batch.size() == 0) return;
    ops::CrossEntropyOptions options = loss_options_;
    options.stats = shard.parameters.tail();
    backward(ops::cross_entropy(shard.model->forward(batch.images), batch.labels, options));
  });
}

void Trainer::exchange() {
  if (shards_) {
    if (observer_ != nullptr) observer_->exchange_begins(shards_->sent_nbytes());
    shards_->exchange();
    if (observer_ != nullptr) observer_->exchange_ends();
  } else if (parallel_) {
    parallel_->finish();
  }
}

Variable Trainer::compute_loss(const data::Batch& batch) {
  const Variable logits = model_.forward(batch.images);            // nn -> ops -> backend -> kernels
  return ops::cross_entropy(logits, batch.labels, loss_options_);  // loss, gradient, counts in one pass
}

void Trainer::finish_sums() {
  if (shards_) shards_->finish();
}

void Trainer::update() {
  optimizer_->step(step_options_);  // divides by the weight sum; one pass over the flat buffer; writes the record
}

std::optional<StepWork> Trainer::step_work() const {
  if (step_work_.launches == 0) return std::nullopt;
  return StepWork{.queued = step_work_, .recorded = graph_.recorded_size({.input = {batch_size_}})};
}

std::int64_t Trainer::run_steps(std::int64_t images, std::int64_t wanted) {
  if (!parallel_ || !graph_.records() || communicator_->can_be_recorded()) {
    if (parallel_) communicator_->check_alive();
    return graph_.run(
        {.input = {images}}, [&] { train_step(images); }, wanted);
  }
  graph_.run({.input = {images}, .kind = kGradients}, [&] { compute_gradients(images); });
  exchange();
  graph_.run({.input = {}, .kind = kUpdate}, [&] {
    finish_sums();
    update();
  });
  return 1;
}

bool Trainer::advance() {
  const Clock::time_point begin = Clock::now();
  const std::int64_t images = loader_.next_size();
  if (images == 0) {
    read_records(kWaitForAll);
  } else {
    // Steps in one launch have batches of one size.
    const std::int64_t alike = (loader_.dataset_size() - loader_.position()) / images;
    const std::int64_t wanted = std::min(steps_per_launch_, alike);
    // What the first steps of a batch size ask of CUDA (memory, plans, recording) may wait for the GPU, with no
    // deadline: nothing that waits for other ranks may be queued then.
    const bool is_new =
        parallel_ && graph_.records() && communicator_->can_be_recorded() && !graph_.recorded_size({.input = {images}});
    read_records(is_new ? kWaitForAll : wanted);
    const std::int64_t steps = run_steps(images, wanted);
    loader_.advance(steps * images);
    status_.submitted(steps);
    read_records(0);
  }
  sums_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  return images > 0;
}

void Trainer::finish_steps() {
  const Clock::time_point begin = Clock::now();
  read_records(kWaitForAll);
  sums_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
}

comm::ParityResult Trainer::check_parity() {
  if (communicator_ == nullptr) return {};
  settle_buffers();
  model_.train();
  start_order(0);
  data::DataLoaderOptions options = loader_.options();
  options.rank = 0;
  options.world_size = 1;
  data::DataLoader whole(loader_.dataset(), options);
  whole.start_epoch(state_.epoch);
  const comm::ParitySubject subject{.model = model_,
                                    .optimizer = *optimizer_,
                                    .sum_gradients =
                                        [&](std::int64_t images) {
                                          loader_.rewind();
                                          for (data::DataLoader& loader : shard_loaders_) loader.rewind();
                                          compute_gradients(images);
                                          exchange();
                                          finish_sums();
                                        },
                                    .update =
                                        [&] {
                                          update();
                                          status_.submitted();
                                          status_.next_or_wait();
                                        },
                                    .load_whole =
                                        [&](std::int64_t images) {
                                          whole.rewind();
                                          return whole.load(images);
                                        },
                                    .loss = [&](const data::Batch& batch) { return compute_loss(batch); },
                                    .pieces = accumulate_,
                                    .shares = shards_ ? comm::kMicroShards : 0,
                                    .synchronised = synchronised_.get()};
  const comm::ParityResult result =
      comm::check_parity(subject, *communicator_,
                         comm::parity_batches(batch_size_, loader_.dataset_size(), communicator_->world_size(), cut_,
                                              !nn::batch_norms_of(model_).empty()),
                         {.reduce_dtype = reduce_dtype_});
  start_order(state_.batch);
  return result;
}

void Trainer::settle_buffers() {
  finish_steps();
  if (communicator_ != nullptr && !buffers_are_shared()) comm::average_buffers(model_, *communicator_);
}

std::string Trainer::compare_replicas(bool with_buffers) {
  finish_steps();
  if (communicator_ == nullptr) return {};
  std::vector<comm::ReplicaTensor> state = comm::replica_state(*optimizer_);
  if (with_buffers || buffers_are_shared()) {
    for (comm::ReplicaTensor& buffer : comm::replica_buffers(model_)) state.push_back(std::move(buffer));
  }
  return comm::compare_replicas(*communicator_, state);
}

void Trainer::start_order(std::int64_t batch) {
  loader_.start_epoch(state_.epoch);
  loader_.skip(batch);
  for (data::DataLoader& loader : shard_loaders_) loader.follow(loader_);
}

void Trainer::start_epoch() {
  model_.train();
  start_order(state_.batch);
  // One rate for every step of the whole epoch, also in its middle: the table has the same size in each, and a resumed
  // training leaves the same optimiser as one that did not stop.
  const std::int64_t first = state_.step - state_.batch;
  std::vector<double> rates;
  for (std::int64_t i = 0; i < loader_.batches_per_epoch(); ++i) rates.push_back(schedule_.at_step(first + i));
  optimizer_->set_learning_rates(rates);
  if (state_.batch > 0) optimizer_->state().set(step_slot::kBatch, state_.batch);
}

void Trainer::finish_epoch() {
  ++state_.epoch;
  state_.batch = 0;
  sums_ = {};
}

void Trainer::read_records(std::int64_t room) {
  // Ranks on GPUs read each record behind the same step, whenever their own device has written it: what it makes one do
  // (to stop at a loss that is not finite), all do before the same step.
  const bool together = parallel_ && !parameters_.device().is_cpu();
  while (!together || status_.queued() + room > kMaxQueued) {
    const std::optional<StatusRecord> record = status_.next(room);
    if (!record) return;
    count(*record);
  }
}

void Trainer::count(const StatusRecord& record) {
  const double loss = double{record.loss_sum} / double{record.weight_sum};
  if (record.non_finite != 0 || !std::isfinite(loss)) stop_non_finite();
  last_finite_loss_ = loss;
  had_finite_loss_ = true;
  sums_.metrics.add(double{record.loss_sum}, double{record.weight_sum}, std::llround(record.correct),
                    std::llround(record.samples));
  ++state_.batch;
  ++state_.step;
}

void Trainer::stop_non_finite() const {
  const std::string last = had_finite_loss_ ? fmt::format("the last finite loss was {:.6g}", last_finite_loss_)
                                            : std::string("there was no finite loss before");
  throw NonFiniteLoss(
      fmt::format("the loss or a gradient is NaN or infinite at step {} (epoch {}); {}; "
                  "try a smaller --lr than {:g}, --warmup-epochs or --clip-grad-norm",
                  state_.step + 1, state_.epoch + 1, last, schedule_.at_step(state_.step)));
}

void Trainer::observe(StepObserver* observer) {
  observer_ = observer;
  if (parallel_) parallel_->observe(observer);
}

std::uint32_t Trainer::weights_crc32() const {
  uLong crc = ::crc32(0L, Z_NULL, 0);
  for (const nn::ParameterSegment& segment : parameters_.segments()) {
    const std::vector<float> values = segment.variable.data().to_vector<float>();
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(values.data()), values.size() * sizeof(float));
  }
  return static_cast<std::uint32_t>(crc);
}

}  // namespace heddle::tools
