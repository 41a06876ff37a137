#include "tools/bench/benchmark.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/core/file.h"
#include "tools/bench/baseline.h"
#include "tools/bench/machine.h"
#include "tools/bench/report.h"
#include "tools/command.h"
#include "tools/config_file.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

int count_wrong(const std::vector<OpResult>& results) {
  int wrong = 0;
  for (const OpResult& r : results) {
    wrong += static_cast<int>(
        std::count_if(r.kernels.begin(), r.kernels.end(), [](const KernelResult& k) { return !k.check.ok; }));
  }
  return wrong;
}

void print_step(const std::vector<OpResult>& results, KernelChoice kernels, Console& out) {
  const auto line = [&](const char* what, KernelChoice choice) {
    out.line(
        fmt::format("step     {}: {} (sum of the warm medians)", what, format_seconds(step_seconds(results, choice))));
  };
  if (kernels != KernelChoice::automatic) return line("chosen kernels", kernels);
  line("automatic choice", KernelChoice::automatic);
  line("vendor's kernels where there are", KernelChoice::vendor);
  line("own kernels where there are", KernelChoice::own);
}

}  // namespace

int run_benchmark(const BenchmarkOptions& options, const Runtime& runtime, Backend& backend, Console& out,
                  Console& err) {
  const Json baseline = options.baseline.empty() ? Json() : read_json_file(options.baseline);
  Conditions conditions{.machine = describe_machine(runtime),
                        .model = options.model,
                        .batch_size = options.batch_size,
                        .options = options.runner};
  // Times would be those of another processor.
  if (runtime.simulated) conditions.options.repeats = 0;
  conditions.timed = conditions.options.repeats > 0;
  if (conditions.timed) {
    conditions.limits = options.limits ? *options.limits : find_limits(runtime.device, options.runner.dtype);
  }
  for (const std::string& line : header_lines(conditions)) out.line(line);
  if (runtime.simulated) out.line("note     a simulated device: kernels are compared and counted, not timed");
  out.line();

  Runner runner(backend, conditions.options, conditions.limits);
  std::vector<OpResult> results;
  for (const Work& work : options.works) {
    results.push_back(runner.run(work));
    for (const std::string& line : result_lines(results.back())) out.line(line);
  }
  out.line();

  if (!options.model.empty() && conditions.timed) print_step(results, options.runner.kernels, out);
  for (const std::string& line : warning_lines(results, conditions.limits)) err.line("heddle: warning: " + line);
  if (!options.json.empty()) write_file_atomically(options.json, to_json(conditions, results).dump(2) + "\n");
  if (!options.csv.empty()) write_file_atomically(options.csv, to_csv(results));
  const bool fast_enough =
      options.baseline.empty() ||
      report_comparison(compare_with_baseline(baseline, conditions.machine, results, options.max_regression), "kernels",
                        options.baseline, options.max_regression, out);
  const int wrong = count_wrong(results);
  if (wrong > 0) err.line(fmt::format("heddle: {} kernels differ from the reference", wrong));
  return wrong == 0 && fast_enough ? exit_code::kDone : exit_code::kFailed;
}

}  // namespace heddle::tools::bench
