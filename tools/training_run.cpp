#include "tools/training_run.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "tools/command.h"

namespace heddle::tools {
namespace {

using Clock = Progress::Clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

TrainingRun::TrainingRun(const TrainingRunParts& parts) : parts_(parts) {
  if (parts.report != nullptr) progress_.emplace(parts.report->out);
}

int TrainingRun::run() {
  checkpoint::TrainingState& state = parts_.trainer.state();
  try {
    while (state.epoch < parts_.settings.epochs) {
      const bool whole = train_epoch();
      parts_.trainer.settle_buffers();
      check_replicas(true);
      if (!whole) return stop_interrupted();
      const Evaluation test = evaluate_epoch();
      if (!test.finished) return stop_interrupted();
      finish_epoch(test);
    }
  } catch (const NonFiniteLoss& error) {
    // Every rank has met it in the same step, so nobody waits for this one; the one that reports says it.
    if (parts_.report == nullptr) return exit_code::kFailed;
    clear_progress();
    throw NonFiniteLoss(error.what() + last_checkpoint());
  } catch (const ReplicasDiffer& error) {
    // All ranks have found the same.
    if (parts_.report == nullptr) return exit_code::kFailed;
    clear_progress();
    throw ReplicasDiffer(error.what() + last_checkpoint());
  }
  return 0;
}

void TrainingRun::check_replicas_if_due() {
  const std::int64_t every = parts_.settings.check_replicas;
  if (every > 0 && parts_.trainer.queued_steps() % every == 0) check_replicas(false);
}

void TrainingRun::check_replicas(bool settled) {
  const std::string difference = parts_.trainer.compare_replicas(settled);
  if (difference.empty()) return;
  throw ReplicasDiffer(fmt::format("the ranks train different models: found after step {} (epoch {}): {}",
                                   parts_.trainer.state().step, parts_.trainer.state().epoch + 1, difference));
}

bool TrainingRun::train_epoch() {
  if (progress_) progress_->start_epoch();
  parts_.trainer.start_epoch();
  while (!parts_.stop.stops_before(rank(), parts_.trainer.queued_steps())) {
    if (!parts_.trainer.advance()) return true;
    check_replicas_if_due();
    show_progress_if_due();
  }
  parts_.trainer.finish_steps();
  return false;
}

Evaluation TrainingRun::evaluate_epoch() {
  const Clock::time_point begin = Clock::now();
  Evaluation test = parts_.evaluator.run([this] {
    show_progress_if_due();
    return !parts_.interrupt.requested();
  });
  evaluation_seconds_ = seconds_since(begin);
  if (test.finished && !std::isfinite(test.metrics.loss())) {
    throw NonFiniteLoss(fmt::format(
        "the loss on the test images is NaN or infinite after epoch {}, step {}; the last "
        "finite training loss was {:.6g}",
        parts_.trainer.state().epoch + 1, parts_.trainer.state().step, parts_.trainer.sums().metrics.loss()));
  }
  return test;
}

void TrainingRun::finish_epoch(const Evaluation& test) {
  checkpoint::TrainingState& state = parts_.trainer.state();
  const EpochSums sums = parts_.trainer.sums();
  const std::int64_t epoch = state.epoch + 1;
  const bool best = !state.best_metric || test.metrics.accuracy() > *state.best_metric;
  if (best) {
    state.best_metric = test.metrics.accuracy();
    state.best_epoch = epoch;
  }
  parts_.trainer.finish_epoch();
  if (parts_.report == nullptr) return;
  RunReport& report = *parts_.report;
  report.folder.append_metrics({{"epoch", epoch},
                                {"step", state.step},
                                {"train_loss", sums.metrics.loss()},
                                {"train_accuracy", sums.metrics.accuracy()},
                                {"test_loss", test.metrics.loss()},
                                {"test_accuracy", test.metrics.accuracy()},
                                {"seconds", sums.seconds},
                                {"images_per_second", sums.images_per_second()},
                                {"train_samples", sums.metrics.samples()},
                                {"learning_rate", parts_.trainer.learning_rate()}});
  const bool due = epoch % parts_.settings.checkpoint_every == 0 || epoch == parts_.settings.epochs;
  if (due || best) report.checkpoints.save(parts_.trainer, best);
  clear_progress();
  report.out.line(
      fmt::format("epoch {}/{}  train loss {:.4f}  accuracy {:.2f}%  test loss {:.4f}  accuracy {:.2f}%{}  "
                  "{:.2f} s  {:.0f} images/s  lr {:.4g}",
                  epoch, parts_.settings.epochs, sums.metrics.loss(), sums.metrics.accuracy() * 100,
                  test.metrics.loss(), test.metrics.accuracy() * 100, best ? " (best)" : "", sums.seconds,
                  sums.images_per_second(), parts_.trainer.learning_rate()));
}

void TrainingRun::show_progress_if_due() {
  const Clock::time_point now = Clock::now();
  if (!progress_ || !progress_->is_due(now)) return;
  const checkpoint::TrainingState& state = parts_.trainer.state();
  const EpochSums& sums = parts_.trainer.sums();
  const std::int64_t batches = parts_.trainer.batches_per_epoch();
  const double step_seconds = state.batch > 0 ? sums.seconds / static_cast<double>(state.batch) : 0.0;
  const std::int64_t epochs_left = parts_.settings.epochs - state.epoch;
  const auto steps_left = static_cast<double>(epochs_left * batches - state.batch);
  progress_->update(
      {.epoch = state.epoch + 1,
       .epochs = parts_.settings.epochs,
       .batch = state.batch,
       .batches = batches,
       .loss = sums.metrics.loss(),
       .accuracy = sums.metrics.accuracy(),
       .images_per_second = sums.images_per_second(),
       .seconds_left = steps_left * step_seconds + static_cast<double>(epochs_left) * evaluation_seconds_},
      now);
}

void TrainingRun::clear_progress() {
  if (progress_) progress_->clear();
}

int TrainingRun::stop_interrupted() {
  const int signal = parts_.stop.signal();
  if (parts_.report != nullptr) save_interrupted(InterruptWatch::signal_name(signal));
  return InterruptWatch::exit_code(signal);
}

void TrainingRun::save_interrupted(const char* signal_name) {
  clear_progress();
  const std::string path = parts_.report->checkpoints.save(parts_.trainer, false);
  const checkpoint::TrainingState& state = parts_.trainer.state();
  parts_.report->out.line(
      fmt::format("interrupted by {} in epoch {} after step {}: saved {}; continue with heddle train "
                  "--resume {}",
                  signal_name, state.epoch + 1, state.step, path, parts_.report->folder.path()));
}

std::string TrainingRun::last_checkpoint() const {
  const std::string kept = parts_.report->checkpoints.newest();
  return kept.empty() ? "; no checkpoint had been written yet" : "; the last good checkpoint is " + kept;
}

}  // namespace heddle::tools
