// `heddle bench scaling`: how much faster a training step becomes with more ranks, and where the rest of the time goes.
#include <fmt/format.h>

#include <algorithm>

#include "datasets/synthetic.h"
#include "engine/core/file.h"
#include "engine/core/text.h"
#include "models/model_list.h"
#include "tools/bench/arguments.h"
#include "tools/bench/machine.h"
#include "tools/bench/scaling_report.h"
#include "tools/command_bench.h"
#include "tools/config_file.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

using bench::RankHost;
using bench::ScalingOptions;

constexpr std::int64_t kMaxBatch = 1'000'000, kMaxRanks = 1024, kMaxSteps = 100'000;
// An epoch has at least so many steps, and the data set so many images.
constexpr std::int64_t kMinSteps = 8, kMinImages = 6000;

CommandSpec spec_of_command() {
  CommandSpec spec{
      .name = "heddle bench scaling",
      .summary = "training steps on 1, 2, 4 ... ranks: speed, and what the time of a step consists of",
      .example =
          "heddle bench scaling --model lenet --json scaling.json\n"
          "  heddle bench scaling --model lenet-d2l --ranks 1,2 --backend in-process,gloo --rounds 9\n"
          "  mpirun -n 2 heddle bench scaling",
      .flags = {{"model", "NAME", "network to train", "lenet"},
                {"batch-size", "N", "images of one rank; strong: of all ranks together", "256"},
                {"ranks", "LIST", "numbers of ranks, as threads; a launcher starts processes",
                 "1,2,4 ... up to the threads there are"},
                {"scaling", "LIST", "strong, weak, apart (nothing is exchanged), threads (one rank with all threads)",
                 "strong,weak,apart,threads"},
                {"backend", "LIST", "in-process, gloo", "in-process; gloo between processes"},
                {"threads-per-rank", "N", "CPU threads of each rank", "1"},
                {"steps", "N", "steps of a case in a round, after some that do not count", "30"},
                {"rounds", "N", "in which all cases take turns", "5"}}};
  for (const std::vector<FlagSpec>& more : {bench::rank_flags(), bench::report_flags("a case", false)}) {
    spec.flags.insert(spec.flags.end(), more.begin(), more.end());
  }
  return spec;
}

std::vector<int> read_ranks(const ParsedArguments& arguments, const RankHost& host, int most) {
  if (host.are_processes()) return {1, host.processes()->world_size()};
  std::vector<int> ranks{1};
  if (arguments.has("ranks")) {
    for (const std::string& n : bench::parse_list(arguments.get("ranks"), "ranks")) {
      ranks.push_back(static_cast<int>(bench::parse_whole_number(n, "ranks", 1, kMaxRanks)));
    }
  } else {
    for (int n = 2; n <= most; n *= 2) ranks.push_back(n);
  }
  // One rank is what the others are compared with.
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

ScalingOptions read_options(const ParsedArguments& arguments, const bench::StartedRanks& started) {
  const RankHost& host = *started.host;
  ScalingOptions options;
  std::vector<std::string> models;
  for (const models::ModelInfo& info : models::model_list()) models.emplace_back(info.name);
  options.model = bench::choices(arguments, "model", options.model, models).front();
  options.batch_size = bench::whole_number(arguments, "batch-size", 256, 1, kMaxBatch);
  options.threads_per_rank = static_cast<int>(bench::whole_number(arguments, "threads-per-rank", 1, 1, 1024));
  options.steps = static_cast<int>(bench::whole_number(arguments, "steps", 30, 1, kMaxSteps));
  options.rounds = static_cast<int>(bench::whole_number(arguments, "rounds", 5, 1, kMaxSteps));
  // The processes of a launcher have their share each.
  options.cores = started.runtime.threads * (host.are_processes() ? host.processes()->world_size() : 1);
  options.ranks = read_ranks(arguments, host, options.cores / options.threads_per_rank);
  options.backends = bench::choices(arguments, "backend", host.backends().front(), host.backends());
  for (const std::string& mode : bench::choices(arguments, "scaling", join_names(bench::scaling_mode_names(), ","),
                                                bench::scaling_mode_names())) {
    options.modes.push_back(bench::scaling_mode_from_name(mode));
  }
  if (options.ranks.back() > options.batch_size) {
    throw UsageError(fmt::format("--batch-size {} has fewer images than there are ranks, {}", options.batch_size,
                                 options.ranks.back()));
  }
  return options;
}

data::ResidentDataset make_images(const ScalingOptions& options) {
  const std::int64_t largest = options.batch_size * options.ranks.back();
  const datasets::ImageDataset images =
      datasets::make_synthetic({.n_train = std::max(kMinImages, kMinSteps * largest), .n_test = 1}).train;
  return {images.images,   images.labels,      images.height, images.width,
          images.channels, images.num_classes, Device::cpu()};
}

}  // namespace

int run_bench_scaling(CommandContext& context) {
  const CommandSpec spec = spec_of_command();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  const bench::ReportFiles files = bench::read_report_files(arguments, true);
  const bench::StartedRanks started = bench::start_ranks(arguments);
  if (!started.runtime.device.is_cpu()) {
    throw UsageError("--device " + arguments.get("device") +
                     ": heddle bench scaling measures ranks on the CPU in this version");
  }
  const ScalingOptions options = read_options(arguments, started);
  const bool reports = started.host->reports();
  const Json baseline = files.baseline.empty() || !reports ? Json() : read_json_file(files.baseline);
  const Json machine = bench::describe_machine(started.runtime);
  if (reports) {
    for (const std::string& line : bench::machine_lines(machine)) context.out.line(line);
  }
  const bench::ScalingReport report = bench::measure_scaling(options, *started.host, make_images(options));
  if (!reports) return exit_code::kDone;
  for (const std::string& line : bench::scaling_lines(options, report)) context.out.line(line);
  if (!files.json.empty()) {
    write_file_atomically(files.json, bench::scaling_json(machine, options, report).dump(2) + "\n");
  }
  if (files.baseline.empty()) return exit_code::kDone;
  const bench::Comparison comparison = bench::compare_times(baseline, bench::read_scaling_seconds, machine,
                                                            bench::scaling_seconds(report), files.max_regression);
  return bench::report_comparison(comparison, "cases", files.baseline, files.max_regression, context.out)
             ? exit_code::kDone
             : exit_code::kFailed;
}

}  // namespace heddle::tools
