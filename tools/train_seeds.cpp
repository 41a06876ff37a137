#include "tools/train_seeds.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <vector>

#include "tools/command.h"
#include "tools/report/run_data.h"
#include "tools/spread.h"
#include "tools/trainer.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

constexpr std::int64_t kMaxSeeds = 1000;

std::int64_t parse_count(const std::string& text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end != text.data() + text.size() || count < 2 || count > kMaxSeeds) {
    throw UsageError(fmt::format("--seeds is '{}'; expected a whole number from 2 to {}", text, kMaxSeeds));
  }
  return count;
}

Json to_json(const Spread& spread) {
  return {{"mean", spread.mean}, {"deviation", spread.deviation}, {"min", spread.min}, {"max", spread.max}};
}

std::string to_text(const Spread& spread) {
  return fmt::format("mean {:.2f}%  standard deviation {:.2f}  min {:.2f}%  max {:.2f}%", spread.mean * 100,
                     spread.deviation * 100, spread.min * 100, spread.max * 100);
}

// What the finished runs have reached.
void report_results(SeedSet& set, const std::vector<std::int64_t>& finished, Console& out, Console& err) {
  std::vector<double> final_accuracy, best_accuracy;
  for (const std::int64_t seed : finished) {
    const report::RunData run = report::read_run(set.run_path(seed));
    for (const std::string& warning : run.warnings) err.line("heddle: warning: " + warning);
    const report::EpochLine* const best = run.best();
    if (best == nullptr) continue;
    const double last = run.last_tested()->test_accuracy;
    final_accuracy.push_back(last);
    best_accuracy.push_back(best->test_accuracy);
    out.line(fmt::format("seed {:<4}test accuracy {:.2f}%, best {:.2f}% in epoch {}", seed, last * 100,
                         best->test_accuracy * 100, best->epoch));
  }
  if (final_accuracy.empty()) return;
  const Spread at_end = spread_of(final_accuracy), at_best = spread_of(best_accuracy);
  set.write_result(
      {{"finished", finished}, {"final_test_accuracy", to_json(at_end)}, {"best_test_accuracy", to_json(at_best)}});
  out.line("final    " + to_text(at_end));
  out.line("best     " + to_text(at_best));
  out.line(fmt::format("done     {} of {} seeds; folder {}", finished.size(), set.seeds().size(), set.path()));
}

}  // namespace

SeedSet open_seed_set(const ParsedArguments& arguments) {
  if (!arguments.has("resume")) {
    const std::int64_t count = parse_count(arguments.get("seeds"));
    const TrainOptions options = read_train_options(arguments);
    return SeedSet::create(options.out, options.settings, options.preset, count);
  }
  for (const char* name : {"seeds", "seed"}) {
    if (arguments.has(name)) {
      throw UsageError(fmt::format("--{} does not go with --resume: a set of runs keeps its seeds", name));
    }
  }
  SeedSet set = SeedSet::read(arguments.get("resume"));
  set.change_settings(read_seed_options(arguments, set, set.seeds().front()).settings);
  return set;
}

int train_seeds(SeedSet& set, const ParsedArguments& arguments, const std::function<int(TrainOptions&)>& train_one,
                Console& out, Console& err) {
  std::vector<std::int64_t> finished, failed;
  for (const std::int64_t seed : set.seeds()) {
    const std::size_t number = finished.size() + failed.size() + 1;
    out.line(fmt::format("seeds    {} of {}: seed {}", number, set.seeds().size(), seed));
    int code = exit_code::kDone;
    bool stopped = false;
    try {
      TrainOptions options = read_seed_options(arguments, set, seed);
      code = train_one(options);
      // By a signal, or by the time limit, which is no failure.
      stopped = code != exit_code::kFailed && !options.finished;
    } catch (const NonFiniteLoss& error) {
      err.line(fmt::format("heddle: seed {}: {}", seed, error.what()));
      code = exit_code::kFailed;
    }
    if (stopped) {
      if (set.begun_runs().empty()) return code;
      out.line(fmt::format("{} of {} seeds are finished; continue the set with heddle train --resume {}",
                           finished.size(), set.seeds().size(), set.path()));
      return code;
    }
    (code == exit_code::kDone ? finished : failed).push_back(seed);
  }
  report_results(set, finished, out, err);
  return failed.empty() ? exit_code::kDone : exit_code::kFailed;
}

}  // namespace heddle::tools
