#include "tools/trainer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <chrono>
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/optim/adam.h"
#include "engine/optim/sgd.h"

namespace heddle::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Pixels a random crop may move an image, as in the usual recipe for 28 to 32 pixels.
constexpr std::int64_t kCropPixels = 2;

std::unique_ptr<optim::Optimizer> make_optimizer(const Settings& s, nn::ParameterBuffer& parameters) {
  if (s.optimizer == "sgd") {
    return std::make_unique<optim::Sgd>(
        parameters, s.lr, SgdParams{.momentum = s.momentum, .weight_decay = s.weight_decay, .nesterov = s.nesterov});
  }
  return std::make_unique<optim::Adam>(parameters, s.lr,
                                       AdamParams{.weight_decay = s.weight_decay, .decoupled = s.optimizer == "adamw"});
}

data::DataLoaderOptions loader_options(const Settings& s, data::DataLoaderOptions options) {
  options.batch_size = s.batch_size;
  options.shuffle = true;
  options.seed = static_cast<std::uint64_t>(s.seed);
  options.random_flip = s.augment != "none";
  options.random_crop = s.augment == "crop-flip" ? kCropPixels : 0;
  return options;
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

}  // namespace

Trainer::Trainer(const Settings& settings, nn::Module& model, const data::ResidentDataset& train,
                 const data::DataLoaderOptions& normalisation)
    : model_(model),
      parameters_(model),
      loader_(train, loader_options(settings, normalisation)),
      optimizer_(make_optimizer(settings, parameters_)),
      schedule_(schedule_options(settings, loader_.batches_per_epoch())),
      loss_options_{
          .label_smoothing = settings.label_smoothing, .reduction = ops::Reduction::sum, .stats = parameters_.tail()},
      step_options_{.divide_by_weight_sum = true, .max_gradient_norm = settings.clip_grad_norm},
      state_{
          .model = settings.model, .total_epochs = settings.epochs, .seed = static_cast<std::uint64_t>(settings.seed)} {
}

bool Trainer::train_step() {
  const Clock::time_point begin = Clock::now();
  const std::optional<data::Batch> batch = loader_.next();  // resident u8 -> gathered, augmented, normalised (B,H,W,C)
  if (!batch) return false;
  optimizer_->set_learning_rate(schedule_.at_step(state_.step));
  optimizer_->zero_grad();                                                         // marks leaves fresh, no kernel
  const Variable logits = model_.forward(batch->images);                           // nn -> ops -> backend -> kernels
  const Variable loss = ops::cross_entropy(logits, batch->labels, loss_options_);  // loss, gradient, counts in one pass
  backward(loss);                                                                  // sums of gradients over the batch
  parameters_.finish_gradients();
  optimizer_->step(step_options_);  // divides by the weight sum; one pass over the flat buffer
  count_step();
  sums_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  return true;
}

void Trainer::start_epoch() {
  model_.train();
  loader_.start_epoch(state_.epoch);
  loader_.skip(state_.batch);
}

void Trainer::finish_epoch() {
  ++state_.epoch;
  state_.batch = 0;
  sums_ = {};
}

void Trainer::count_step() {
  const float* const tail = parameters_.tail().host_data<float>();
  const double loss = double{tail[tail_slot::kLossSum]} / double{tail[tail_slot::kWeightSum]};
  if (tail[tail_slot::kNonFinite] > 0 || !std::isfinite(loss) || optimizer_->last_step_skipped()) stop_non_finite();
  last_finite_loss_ = loss;
  had_finite_loss_ = true;
  sums_.metrics.add(parameters_.tail());
  ++state_.batch;
  ++state_.step;
}

void Trainer::stop_non_finite() const {
  const std::string last = had_finite_loss_ ? fmt::format("the last finite loss was {:.6g}", last_finite_loss_)
                                            : std::string("there was no finite loss before");
  throw NonFiniteLoss(
      fmt::format("the loss or a gradient is NaN or infinite at step {} (epoch {}); {}; "
                  "try a smaller --lr than {:g}, --warmup-epochs or --clip-grad-norm",
                  state_.step + 1, state_.epoch + 1, last, learning_rate()));
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
