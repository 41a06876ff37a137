#include "tools/training_run.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/optim/averaged_weights.h"
#include "tools/command.h"
#include "tools/evaluation_record.h"
#include "tools/run_plan.h"

namespace heddle::tools {
namespace {

using Clock = Progress::Clock;

// A sheet that fits a screen.
constexpr std::size_t kShownMistakes = 24;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

TrainingRun::TrainingRun(const TrainingRunParts& parts) : parts_(parts) {
  if (parts.report != nullptr) progress_.emplace(parts.report->out);
}

int TrainingRun::run() {
  const checkpoint::TrainingState& state = parts_.trainer.state();
  saved_step_ = parts_.trainer.queued_steps();
  try {
    while (!is_finished(parts_.settings, state)) {
      const bool whole = train_epoch();
      parts_.trainer.settle_buffers();
      check_replicas(true);
      if (!whole) return stop_before_end();
      if (!evaluates_after(parts_.settings, state.epoch + 1)) {
        finish_epoch(nullptr);
        continue;
      }
      const Evaluation test = evaluate_epoch();
      if (!test.finished) return stop_before_end();
      finish_epoch(&test);
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
  return exit_code::kDone;
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
  if (parts_.report != nullptr) parts_.report->events.start_epoch(parts_.trainer);
  while (!parts_.stop.stops_before(rank(), parts_.trainer.queued_steps())) {
    if (!parts_.trainer.advance()) return true;
    check_replicas_if_due();
    save_if_due();
    if (parts_.report != nullptr) parts_.report->events.after_steps(parts_.trainer);
    show_progress_if_due();
  }
  parts_.trainer.finish_steps();
  return false;
}

Evaluation TrainingRun::evaluate_epoch() {
  const Clock::time_point begin = Clock::now();
  std::optional<Evaluation> result;
  optim::use_averages(parts_.trainer.optimizer(), [&] {
    result = parts_.evaluator.run([this] {
      show_progress_if_due();
      return !parts_.stop.requested();
    });
  });
  Evaluation test = std::move(*result);
  evaluation_seconds_ = seconds_since(begin);
  if (test.finished && !std::isfinite(test.metrics.loss())) {
    throw NonFiniteLoss(fmt::format(
        "the loss on the test images is NaN or infinite after epoch {}, step {}; the last "
        "finite training loss was {:.6g}",
        parts_.trainer.state().epoch + 1, parts_.trainer.state().step, parts_.trainer.sums().metrics.loss()));
  }
  return test;
}

void TrainingRun::finish_epoch(const Evaluation* test) {
  checkpoint::TrainingState& state = parts_.trainer.state();
  const bool best = test != nullptr && (!state.best_metric || test->metrics.accuracy() > *state.best_metric);
  if (best) {
    state.best_metric = test->metrics.accuracy();
    state.best_epoch = state.epoch + 1;
  }
  if (parts_.report != nullptr) return report_epoch(test, best);
  parts_.trainer.finish_epoch();
}

void TrainingRun::report_epoch(const Evaluation* test, bool best) {
  RunReport& report = *parts_.report;
  const EpochSums sums = parts_.trainer.sums();
  report.events.finish_epoch(parts_.trainer, test);
  parts_.trainer.finish_epoch();
  const checkpoint::TrainingState& state = parts_.trainer.state();
  const std::int64_t epoch = state.epoch;
  const double rate = parts_.trainer.learning_rate();
  Json metrics = {{"epoch", epoch},
                  {"step", state.step},
                  {"train_loss", sums.metrics.loss()},
                  {"train_accuracy", sums.metrics.accuracy()},
                  {"test_loss", nullptr},
                  {"test_accuracy", nullptr},
                  {"seconds", sums.seconds},
                  {"images_per_second", sums.images_per_second()},
                  {"train_samples", sums.metrics.samples()},
                  {"learning_rate", rate}};
  std::string test_text;
  if (test != nullptr) {
    metrics["test_loss"] = test->metrics.loss();
    metrics["test_accuracy"] = test->metrics.accuracy();
    test_text = fmt::format("test loss {:.4f}  accuracy {:.2f}%{}  ", test->metrics.loss(),
                            test->metrics.accuracy() * 100, best ? " (best)" : "");
  }
  report.folder.append_metrics(metrics);
  if (best || saves_after(parts_.settings, state)) {
    report.checkpoints.save(parts_.trainer, best);
    // Less dear than what is saved above: behind it, should the disk be full.
    if (test != nullptr) write_pictures(*test);
  }
  clear_progress();
  report.out.line(
      fmt::format("epoch {}/{}  train loss {:.4f}  accuracy {:.2f}%  {}{:.2f} s  {:.0f} images/s  lr {:.4g}", epoch,
                  parts_.settings.epochs, sums.metrics.loss(), sums.metrics.accuracy() * 100, test_text, sums.seconds,
                  sums.images_per_second(), rate));
  if (epoch < parts_.settings.epochs && stops_early(parts_.settings, state)) {
    report.out.line(fmt::format("early stop: no test accuracy above the {:.2f}% of epoch {} in {} epochs",
                                *state.best_metric * 100, state.best_epoch, epoch - state.best_epoch));
  }
}

void TrainingRun::write_pictures(const Evaluation& test) {
  RunReport& report = *parts_.report;
  const checkpoint::TrainingState& state = parts_.trainer.state();
  const ModelDescription& description = report.checkpoints.description();
  const std::vector<Mistake> worst = worst_mistakes(test, report.test, kShownMistakes);
  report.folder.write_evaluation(evaluation_record(state.epoch, state.step, test, worst, description));
  report.events.add_pictures(state.step, test, worst, description);
}

void TrainingRun::save_if_due() {
  const std::int64_t every = parts_.settings.checkpoint_steps, queued = parts_.trainer.queued_steps();
  // Several steps may have been launched at once.
  if (every == 0 || queued / every == saved_step_ / every) return;
  saved_step_ = queued;
  parts_.trainer.settle_buffers();
  check_replicas(true);
  if (parts_.report != nullptr) parts_.report->checkpoints.save(parts_.trainer, false);
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
  const std::int64_t every = parts_.settings.evaluate_every, evaluations_left = (epochs_left + every - 1) / every;
  progress_->update(
      {.epoch = state.epoch + 1,
       .epochs = parts_.settings.epochs,
       .batch = state.batch,
       .batches = batches,
       .loss = sums.metrics.loss(),
       .accuracy = sums.metrics.accuracy(),
       .images_per_second = sums.images_per_second(),
       .seconds_left = steps_left * step_seconds + static_cast<double>(evaluations_left) * evaluation_seconds_},
      now);
}

void TrainingRun::clear_progress() {
  if (progress_) progress_->clear();
}

int TrainingRun::stop_before_end() {
  const int signal = parts_.stop.signal();
  if (parts_.report != nullptr) {
    save_stopped(signal != 0 ? fmt::format("interrupted by {}", InterruptWatch::signal_name(signal))
                             : "the time limit of " + parts_.settings.time_limit + " has passed");
  }
  return signal != 0 ? InterruptWatch::exit_code(signal) : exit_code::kDone;
}

void TrainingRun::save_stopped(const std::string& reason) {
  clear_progress();
  parts_.report->events.write_rest(parts_.trainer);
  const std::string path = parts_.report->checkpoints.save(parts_.trainer, false);
  const checkpoint::TrainingState& state = parts_.trainer.state();
  parts_.report->out.line(fmt::format("{} in epoch {} after step {}: saved {}; continue with heddle train --resume {}",
                                      reason, state.epoch + 1, state.step, path, parts_.report->folder.path()));
}

std::string TrainingRun::last_checkpoint() const {
  const std::string kept = parts_.report->checkpoints.newest();
  return kept.empty() ? "; no checkpoint had been written yet" : "; the last good checkpoint is " + kept;
}

}  // namespace heddle::tools
