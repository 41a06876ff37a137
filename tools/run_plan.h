// When a run evaluates, saves and ends: pure functions of its settings and of what is done, so that a resumed run
// decides as an uninterrupted one.
#pragma once

#include <cstdint>

#include "engine/checkpoint/checkpoint.h"
#include "tools/settings.h"

namespace heddle::tools {

// After this epoch (from 1) the test images are evaluated: every --evaluate-every epochs and after the last one.
bool evaluates_after(const Settings& settings, std::int64_t epoch);

// --early-stop: the latest evaluation was as many epochs or more after the best one.
bool stops_early(const Settings& settings, const checkpoint::TrainingState& state);

// Nothing is left to do: all epochs, or an early stop.
bool is_finished(const Settings& settings, const checkpoint::TrainingState& state);

// The finished epoch is saved, whether or not it is the best one.
bool saves_after(const Settings& settings, const checkpoint::TrainingState& state);

}  // namespace heddle::tools
