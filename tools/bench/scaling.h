// Measures how a training step scales over ranks on a CPU: real steps of the trainer in small blocks that take turns,
// so that a slow minute of the machine meets all cases, and beside each what a simple model of it predicts. Gives
// numbers; prints nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "tools/bench/rank_host.h"
#include "tools/bench/step_clock.h"
#include "tools/bench/timing.h"

namespace heddle::tools::bench {

// strong: one batch shared by all ranks. weak: as many images for each rank as one rank has alone. apart: strong, but
// each rank trains a model of its own and nothing is exchanged: what the processors allow. threads: one rank that has
// the threads of all of them.
enum class ScalingMode : std::uint8_t { strong, weak, apart, threads };
const char* name_of(ScalingMode mode) noexcept;
// Names of all.
const std::vector<std::string>& scaling_mode_names();
// Throws: InvalidArgument.
ScalingMode scaling_mode_from_name(const std::string& name);

struct ScalingCase {
  ScalingMode mode = ScalingMode::strong;
  std::string backend;  // "" where nothing is exchanged
  int ranks = 1;        // mode threads: of the case that it is compared with; it has one itself
  int threads_per_rank = 1;
  std::int64_t batch_size = 0;  // of all ranks together

  int groups_ranks() const noexcept { return mode == ScalingMode::threads ? 1 : ranks; }
  int threads_of_rank() const noexcept {
    return mode == ScalingMode::threads ? ranks * threads_per_rank : threads_per_rank;
  }
};

struct ScalingOptions {
  std::string model = "lenet";
  std::int64_t batch_size = 256;  // of one rank, and of all ranks in strong scaling
  std::vector<int> ranks;         // ascending
  std::vector<ScalingMode> modes;
  std::vector<std::string> backends;
  int threads_per_rank = 1;
  int cores = 1;  // threads that all ranks may use together
  int steps = 30;
  int rounds = 5;
};

struct ScalingResult {
  ScalingCase what;
  StepSplit split;                  // mean over the ranks, and over the middle half of the steps of all rounds
  Timing rounds;                    // of the median step of each round
  double fastest_step_seconds = 0;  // what is left of the step on a machine that others keep busy
  double images_per_second = 0;
  // Speed over (ranks times that of one rank), weak: with images as many times.
  double efficiency = 0;
  double all_reduce_seconds = 0;  // of the step's gradients, measured alone; 0 where nothing is exchanged
  // One rank's step, its images' share of it, times the threads that have to share a core, plus all_reduce_seconds.
  double predicted_step_seconds = 0;
};

struct ScalingReport {
  std::vector<ScalingResult> results;             // the first is one rank
  std::vector<std::int64_t> bucket_numels;        // f32 elements of each call of a step
  std::int64_t gradient_nbytes() const noexcept;  // of all of them
};

// The case of one rank first; then the others, by ranks.
std::vector<ScalingCase> plan_scaling(const ScalingOptions& options);
// What the model predicts from the measured step of one rank.
double predict_step(const ScalingCase& what, const ScalingCase& one, double one_step_seconds, double all_reduce_seconds,
                    int cores);

// All processes of a host call it. dataset: on the CPU, of at least the largest batch. Only a process that reports gets
// results. Throws: UsageError, CommError.
ScalingReport measure_scaling(const ScalingOptions& options, const RankHost& host,
                              const data::ResidentDataset& dataset);

}  // namespace heddle::tools::bench
