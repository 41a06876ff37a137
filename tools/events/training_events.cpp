#include "tools/events/training_events.h"

#include <algorithm>

#include "datasets/image_file.h"
#include "tools/pictures/evaluation_pictures.h"

namespace heddle::tools {
namespace {

// Fine enough for a curve, and coarse enough that nobody notices the writes.
constexpr std::int64_t kPointsPerEpoch = 50;
// Of slow steps; a killed run has lost no more than these.
constexpr std::chrono::seconds kLongestPause{5};

PicturePoint picture_point(const char* tag, const datasets::Image& image) {
  return {.tag = tag,
          .height = image.height,
          .width = image.width,
          .channels = static_cast<int>(image.channels),
          .png = datasets::encode_png(image)};
}

}  // namespace

void TrainingEvents::start_epoch(const Trainer& trainer) {
  steps_per_point_ = std::max<std::int64_t>(trainer.batches_per_epoch() / kPointsPerEpoch, 1);
  last_step_ = trainer.state().step;
  last_sums_ = trainer.sums();
  last_time_ = Clock::now();
}

void TrainingEvents::after_steps(const Trainer& trainer) {
  const std::int64_t steps = trainer.state().step - last_step_;
  if (steps == 0) return;
  if (steps >= steps_per_point_ || Clock::now() - last_time_ >= kLongestPause) write_point(trainer);
}

void TrainingEvents::write_point(const Trainer& trainer) {
  const EpochSums& now = trainer.sums();
  EpochSums since;
  since.seconds = now.seconds - last_sums_.seconds;
  since.metrics.add(now.metrics.loss_sum() - last_sums_.metrics.loss_sum(),
                    now.metrics.weight_sum() - last_sums_.metrics.weight_sum(),
                    now.metrics.correct() - last_sums_.metrics.correct(),
                    now.metrics.samples() - last_sums_.metrics.samples());
  file_.append(encode_scalar_event({.step = trainer.state().step, .wall_time = wall_time_now()},
                                   {{"loss/step", since.metrics.loss()},
                                    {"accuracy/step", since.metrics.accuracy()},
                                    {"images_per_second", since.images_per_second()},
                                    {"learning_rate", trainer.learning_rate()}}));
  last_step_ = trainer.state().step;
  last_sums_ = now;
  last_time_ = Clock::now();
}

void TrainingEvents::write_rest(const Trainer& trainer) {
  if (trainer.state().step > last_step_) write_point(trainer);
}

void TrainingEvents::finish_epoch(const Trainer& trainer, const Evaluation* test) {
  write_rest(trainer);
  const EpochSums& sums = trainer.sums();
  std::vector<ScalarPoint> values{{"loss/train", sums.metrics.loss()}, {"accuracy/train", sums.metrics.accuracy()}};
  if (test != nullptr) {
    values.push_back({"loss/test", test->metrics.loss()});
    values.push_back({"accuracy/test", test->metrics.accuracy()});
  }
  file_.append(encode_scalar_event({.step = trainer.state().step, .wall_time = wall_time_now()}, values));
}

void TrainingEvents::add_pictures(std::int64_t step, const Evaluation& test, const std::vector<Mistake>& worst,
                                  const ModelDescription& description) {
  if (!datasets::png_supported()) return;
  const EventPlace place{.step = step, .wall_time = wall_time_now()};
  file_.append(
      encode_picture_event(place, picture_point("evaluation/confusion", draw_confusion(test.confusion, description))));
  if (worst.empty()) return;
  file_.append(
      encode_picture_event(place, picture_point("evaluation/misclassified", draw_mistakes(worst, description))));
}

}  // namespace heddle::tools
