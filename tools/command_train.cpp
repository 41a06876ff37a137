// `heddle train`: checks everything, then makes the run folder, then trains.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tools/command.h"
#include "tools/data_source.h"
#include "tools/duration.h"
#include "tools/rank_process.h"
#include "tools/train_seeds.h"
#include "tools/training_job.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

// The time runs from the program's start, near enough: who limits it has a slot to keep to.
StopLimits stop_limits(const Settings& settings) {
  const double seconds = *parse_duration(settings.time_limit);
  if (seconds == 0) return {};
  const std::chrono::duration<double> time(seconds);
  using Clock = std::chrono::steady_clock;
  return {.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(time)};
}

// processes: the other ranks, if they are processes; null: those that are asked for are threads.
int train(TrainOptions& options, const StopLimits& limits, const InterruptWatch& interrupt,
          comm::Communicator* processes, CommandContext& context) {
  const bool reports = processes == nullptr || processes->rank() == 0;
  Runtime runtime = start_runtime(settings_of_rank(options));
  if (processes != nullptr) share_threads(*processes, options.settings, runtime);
  if (reports) {
    for (const std::string& notice : runtime.notices) context.out.line("note     " + notice);
    for (const std::string& notice : options.notices) context.out.line("note     " + notice);
  }

  datasets::ImageDatasetPair data = load_data(options.settings);
  if (reports) print_data(data, options.settings, context.out, context.err);
  const Json data_description = data_to_json(data);
  if (processes != nullptr) compare_with_others(*processes, options, data_description);
  const ModelDescription description = prepare_data(options.settings, data);
  const ResidentParts train_sets = make_resident(data.train, runtime.devices);
  const ResidentParts test_sets = make_resident(data.test, runtime.devices);
  RankGroup threads;
  std::optional<StopAgreement> stop;
  if (processes != nullptr) {
    stop.emplace(interrupt, *processes, limits);
  } else {
    threads = make_thread_ranks(options.settings, runtime);
    stop.emplace(interrupt, static_cast<int>(options.settings.ranks), limits, steps_ahead(threads));
  }
  const TrainingJob job{.options = options,
                        .resumes = options.resumed.has_value(),
                        .runtime = runtime,
                        .device = runtime.device,
                        .description = description,
                        .data = data_description,
                        .train = train_sets.front(),
                        .test = test_sets.front(),
                        .interrupt = interrupt,
                        .stop = *stop,
                        .out = context.out,
                        .err = context.err};
  if (processes != nullptr) return run_training_job(job, processes);
  return run_training_threads(job, std::move(threads), train_sets, test_sets);
}

// This process is one rank of several.
int train_as_process(TrainOptions& options, const comm::LaunchEnv& launch, CommandContext& context) {
  if (launch.rank > 0) context.err.set_prefix("[rank " + std::to_string(launch.rank) + "] ");
  // mpirun gives its first process a terminal of its own, and writes to a file what it reads there.
  context.out.set_plain();
  const StopLimits limits = stop_limits(options.settings);
  apply_launcher(launch, options.settings);
  const InterruptWatch interrupt(std::chrono::seconds(2));
  const HurryScope out_in_hurry(context.out, [&] { return interrupt.requested(); });
  const HurryScope err_in_hurry(context.err, [&] { return interrupt.requested(); });
  std::unique_ptr<comm::Communicator> processes;
  try {
    processes = join_ranks(launch, options, [&interrupt] { return interrupt.requested(); });
  } catch (const CommError&) {
    if (!interrupt.requested()) throw;
    context.err.line(std::string("heddle: interrupted by ") + interrupt.signal_name() +
                     " while it waited for the other ranks; nothing was written");
    return interrupt.exit_code();
  }
  try {
    const int code = train(options, limits, interrupt, processes.get(), context);
    // Rank 0 may have failed, and says so.
    if (code == exit_code::kFailed) processes->barrier("end of the failed training");
    return code;
  } catch (const CommError&) {
    // The launcher ends all ranks when the first one fails: that should be the one that knows more.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    throw;
  } catch (const std::exception& error) {
    processes->abort("rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.world_size) +
                     " has failed: " + error.what());
    throw;
  }
}

// A run for each seed, in this process.
int train_set(const ParsedArguments& arguments, CommandContext& context) {
  SeedSet set = open_seed_set(arguments);
  const InterruptWatch interrupt;
  const HurryScope out_in_hurry(context.out, [&] { return interrupt.requested(); });
  const HurryScope err_in_hurry(context.err, [&] { return interrupt.requested(); });
  // One limit for all of them.
  const StopLimits limits = stop_limits(set.settings());
  const auto train_one = [&](TrainOptions& options) { return train(options, limits, interrupt, nullptr, context); };
  try {
    const int code = train_seeds(set, arguments, train_one, context.out, context.err);
    set.discard_if_unused();  // a signal may have come before the first run
    return code;
  } catch (const UsageError&) {
    // Such as fewer --epochs than a run has: with them in its description the set could not be continued.
    set.restore_settings();
    set.discard_if_unused();
    throw;
  } catch (const std::exception&) {
    set.discard_if_unused();
    throw;
  }
}

}  // namespace

int run_train(CommandContext& context) {
  const CommandSpec spec = train_spec();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  const std::optional<comm::LaunchEnv> launch = find_launcher(arguments);
  const bool reports = !launch || launch->rank == 0;
  const bool is_set = arguments.has("seeds") || (arguments.has("resume") && SeedSet::is_there(arguments.get("resume")));
  if (is_set && launch) {
    throw UsageError("a set of runs does not go with " + launch->launcher +
                     ", which has started ranks of one run: start it once for each seed");
  }
  if (is_set) return train_set(arguments, context);
  TrainOptions options = read_train_options(arguments, reports);
  // Before seconds are spent on the data.
  if (!options.resumed && reports) RunFolder::check_new(options.out);
  if (launch) return train_as_process(options, *launch, context);
  const InterruptWatch interrupt;
  const HurryScope out_in_hurry(context.out, [&] { return interrupt.requested(); });
  const HurryScope err_in_hurry(context.err, [&] { return interrupt.requested(); });
  return train(options, stop_limits(options.settings), interrupt, nullptr, context);
}

}  // namespace heddle::tools
