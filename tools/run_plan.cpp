#include "tools/run_plan.h"

namespace heddle::tools {

bool evaluates_after(const Settings& settings, std::int64_t epoch) {
  return epoch % settings.evaluate_every == 0 || epoch == settings.epochs;
}

bool stops_early(const Settings& settings, const checkpoint::TrainingState& state) {
  return settings.early_stop > 0 && state.best_metric.has_value() && evaluates_after(settings, state.epoch) &&
         state.epoch - state.best_epoch >= settings.early_stop;
}

bool is_finished(const Settings& settings, const checkpoint::TrainingState& state) {
  return state.epoch >= settings.epochs || stops_early(settings, state);
}

bool saves_after(const Settings& settings, const checkpoint::TrainingState& state) {
  return state.epoch % settings.checkpoint_every == 0 || is_finished(settings, state);
}

}  // namespace heddle::tools
