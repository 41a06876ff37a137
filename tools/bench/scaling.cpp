#include "tools/bench/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/core/parallel.h"
#include "models/model_list.h"
#include "nccl_comm/buckets.h"
#include "tools/bench/all_reduce.h"

namespace heddle::tools::bench {
namespace {

// Steps before those that count: the first ones allocate memory and make the plans.
constexpr int kWarmUpSteps = 5;
constexpr int kAllReduceRepeats = 5;

// One rank's part of a training.
class BenchedRank {
 public:
  BenchedRank(const ScalingOptions& options, const ScalingCase& what, const data::ResidentDataset& dataset,
              comm::Communicator& communicator)
      : communicator_(communicator), model_(models::make_model(options.model, {})) {
    Philox random(1);
    model_->reset_parameters(random);
    Settings settings;
    settings.model = options.model;
    settings.steps_per_launch = 1;
    settings.batch_size = what.batch_size;
    // Each by itself.
    if (what.mode == ScalingMode::apart) {
      const std::int64_t n = what.ranks;
      settings.batch_size = what.batch_size / n + (communicator.rank() < what.batch_size % n ? 1 : 0);
    }
    // As many for all, since the ranks begin an epoch together: those of the largest share.
    const std::int64_t largest =
        what.mode == ScalingMode::apart ? (what.batch_size + what.ranks - 1) / what.ranks : what.batch_size;
    full_batches_ = dataset.size() / largest;
    trainer_ = std::make_unique<Trainer>(settings, *model_, dataset, data::DataLoaderOptions{},
                                         what.backend.empty() ? nullptr : &communicator);
    trainer_->start_epoch();
  }

  // Every step has a full batch.
  std::vector<StepSplit> run(int steps) {
    StepClock clock;
    trainer_->observe(&clock);
    std::vector<StepSplit> splits;
    for (int i = 0; i < steps; ++i) {
      if (trainer_->state().batch == full_batches_) {
        trainer_->finish_epoch();
        trainer_->start_epoch();
        communicator_.barrier("begin of an epoch");
      }
      clock.begin_step();
      trainer_->advance();
      splits.push_back(clock.end_step());
    }
    trainer_->observe(nullptr);
    return splits;
  }

 private:
  comm::Communicator& communicator_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<Trainer> trainer_;
  std::int64_t full_batches_ = 1;
};

// The mean over the ranks of each step, on all of them.
std::vector<StepSplit> mean_over_ranks(comm::Communicator& communicator, const std::vector<StepSplit>& own) {
  constexpr std::int64_t kParts = 5;
  std::vector<double> values;
  for (const StepSplit& s : own) values.insert(values.end(), {s.step, s.compute, s.exposed, s.load, s.hidden});
  const auto n = static_cast<std::int64_t>(values.size());
  Tensor all = Tensor::empty({n * communicator.world_size()}, DType::f64);
  communicator.all_gather(Tensor::from_values(values, {n}), all, "times of the steps");
  const double* const data = all.host_data<double>();
  std::vector<StepSplit> steps;
  for (std::int64_t step = 0; step < n / kParts; ++step) {
    std::vector<StepSplit> of_ranks;
    for (int r = 0; r < communicator.world_size(); ++r) {
      const double* const x = data + r * n + step * kParts;
      of_ranks.push_back({.step = x[0], .compute = x[1], .exposed = x[2], .load = x[3], .hidden = x[4]});
    }
    steps.push_back(mean_of(of_ranks));
  }
  return steps;
}

// A block of steps on every rank of the case.
std::vector<StepSplit> run_block(const ScalingOptions& options, const ScalingCase& what, const RankHost& host,
                                 const data::ResidentDataset& dataset) {
  std::vector<StepSplit> steps;
  host.run(what.backend.empty() ? host.backends().front() : what.backend, what.groups_ranks(),
           [&](comm::Communicator& communicator) {
             const ThreadLimit limit(what.threads_of_rank());
             BenchedRank rank(options, what, dataset, communicator);
             rank.run(kWarmUpSteps);
             communicator.barrier("begin of the steps that count");
             std::vector<StepSplit> mean = mean_over_ranks(communicator, rank.run(options.steps));
             if (communicator.rank() == 0) steps = std::move(mean);
           });
  return steps;
}

// The calls of a step with nothing in between.
double time_exchange(const ScalingCase& what, const std::vector<std::int64_t>& numels, const RankHost& host) {
  double seconds = 0;
  host.run(what.backend, what.ranks, [&](comm::Communicator& communicator) {
    const ThreadLimit limit(what.threads_per_rank);
    double of_rank = 0;
    for (const std::int64_t numel : numels) {
      const AllReduceResult result =
          measure_all_reduce(communicator, {.backend = what.backend, .ranks = what.ranks, .numel = numel},
                             Device::cpu(), kAllReduceRepeats);
      if (result.wrong > 0) throw CommError("the all-reduce of the gradients is wrong: " + result.problem);
      of_rank += result.timing->median;
    }
    if (communicator.rank() == 0) seconds = of_rank;
  });
  return seconds;
}

std::vector<std::int64_t> bucket_numels_of(const std::string& name) {
  const auto model = models::make_model(name, {});
  const nn::ParameterBuffer parameters(*model);
  std::vector<std::int64_t> numels;
  for (const comm::Bucket& bucket : comm::plan_buckets(parameters.segments(), {})) {
    numels.push_back(bucket.end - bucket.begin);
  }
  return numels;
}

double median_step(std::vector<StepSplit> steps) {
  std::vector<double> seconds;
  for (const StepSplit& step : steps) seconds.push_back(step.step);
  return summarize(std::move(seconds), 1).median;
}

}  // namespace

const char* name_of(ScalingMode mode) noexcept {
  switch (mode) {
    case ScalingMode::strong: return "strong";
    case ScalingMode::weak: return "weak";
    case ScalingMode::apart: return "apart";
    case ScalingMode::threads: return "threads";
  }
  return "";
}

const std::vector<std::string>& scaling_mode_names() {
  static const std::vector<std::string> names = {"strong", "weak", "apart", "threads"};
  return names;
}

ScalingMode scaling_mode_from_name(const std::string& name) {
  for (const ScalingMode mode : {ScalingMode::strong, ScalingMode::weak, ScalingMode::apart, ScalingMode::threads}) {
    if (name == name_of(mode)) return mode;
  }
  throw InvalidArgument("unknown mode of scaling '" + name + "'");
}

std::int64_t ScalingReport::gradient_nbytes() const noexcept {
  return std::accumulate(bucket_numels.begin(), bucket_numels.end(), std::int64_t{0}) *
         static_cast<std::int64_t>(sizeof(float));
}

std::vector<ScalingCase> plan_scaling(const ScalingOptions& options) {
  std::vector<ScalingCase> cases{
      {.ranks = 1, .threads_per_rank = options.threads_per_rank, .batch_size = options.batch_size}};
  for (const int ranks : options.ranks) {
    if (ranks == 1) continue;
    for (const ScalingMode mode : options.modes) {
      ScalingCase what{.mode = mode,
                       .ranks = ranks,
                       .threads_per_rank = options.threads_per_rank,
                       .batch_size = mode == ScalingMode::weak ? options.batch_size * ranks : options.batch_size};
      if (mode == ScalingMode::apart || mode == ScalingMode::threads) {
        cases.push_back(what);
        continue;
      }
      for (const std::string& backend : options.backends) {
        what.backend = backend;
        cases.push_back(what);
      }
    }
  }
  return cases;
}

double predict_step(const ScalingCase& what, const ScalingCase& one, double one_step_seconds, double all_reduce_seconds,
                    int cores) {
  const double images = static_cast<double>(what.batch_size) / what.ranks;
  const double crowding = std::max(1.0, static_cast<double>(what.ranks) * what.threads_per_rank / cores);
  return one_step_seconds * images / static_cast<double>(one.batch_size) * crowding + all_reduce_seconds;
}

ScalingReport measure_scaling(const ScalingOptions& options, const RankHost& host,
                              const data::ResidentDataset& dataset) {
  const std::vector<ScalingCase> cases = plan_scaling(options);
  ScalingReport report{.bucket_numels = bucket_numels_of(options.model)};
  std::vector<std::vector<StepSplit>> steps(cases.size());
  std::vector<std::vector<double>> medians(cases.size()), exchanges(cases.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const std::vector<StepSplit> block = run_block(options, cases[i], host, dataset);
      if (!cases[i].backend.empty()) exchanges[i].push_back(time_exchange(cases[i], report.bucket_numels, host));
      if (!host.reports()) continue;
      medians[i].push_back(median_step(block));
      steps[i].insert(steps[i].end(), block.begin(), block.end());
    }
  }
  if (!host.reports()) return report;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    ScalingResult result{
        .what = cases[i], .split = middle_mean(steps[i]), .rounds = summarize(medians[i], options.steps)};
    result.fastest_step_seconds =
        std::min_element(steps[i].begin(), steps[i].end(), [](const StepSplit& a, const StepSplit& b) {
          return a.step < b.step;
        })->step;
    if (!exchanges[i].empty()) result.all_reduce_seconds = summarize(exchanges[i], 1).median;
    result.images_per_second = static_cast<double>(cases[i].batch_size) / result.split.step;
    report.results.push_back(result);
  }
  const ScalingResult one = report.results.front();
  for (ScalingResult& result : report.results) {
    result.efficiency = result.images_per_second / (result.what.ranks * one.images_per_second);
    result.predicted_step_seconds =
        predict_step(result.what, one.what, one.split.step, result.all_reduce_seconds, options.cores);
  }
  return report;
}

}  // namespace heddle::tools::bench
