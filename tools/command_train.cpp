// `heddle train`: checks everything, then makes the run folder, then trains.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/device/device_runtime.h"
#include "nccl_comm/rank_threads.h"
#include "tools/command.h"
#include "tools/data_source.h"
#include "tools/rank_group.h"
#include "tools/rank_process.h"
#include "tools/trainer.h"
#include "tools/training_job.h"

namespace heddle::tools {
namespace {

// On each device. Frees the host copy of the images once the devices have their own.
std::vector<data::ResidentDataset> make_resident(datasets::ImageDataset& part, const std::vector<Device>& devices) {
  std::vector<data::ResidentDataset> resident;
  for (const Device device : devices) {
    resident.emplace_back(part.images, part.labels, part.height, part.width, part.channels, part.num_classes, device);
    // Ranks read it on streams of their own.
    runtime_for(device).synchronize(current_stream(device));
  }
  part.images = {};
  part.labels = {};
  return resident;
}

// processes: the other ranks, if they are processes; null: those that are asked for are threads.
int train(TrainOptions& options, const InterruptWatch& interrupt, comm::Communicator* processes,
          CommandContext& context) {
  const bool reports = processes == nullptr || processes->rank() == 0;
  Runtime runtime = start_runtime(options.settings);
  if (processes != nullptr) share_threads(*processes, options.settings, runtime);
  if (reports) {
    for (const std::string& notice : runtime.notices) context.out.line("note     " + notice);
    for (const std::string& notice : options.notices) context.out.line("note     " + notice);
  }

  datasets::ImageDatasetPair data = load_data(options.settings);
  if (reports) print_data(data, options.settings, context.out, context.err);
  const Json data_description = data_to_json(data);
  if (processes != nullptr) compare_with_others(*processes, options, data_description);
  const ModelDescription description = describe_model(options.settings, data.train);
  const std::vector<data::ResidentDataset> train_sets = make_resident(data.train, runtime.devices);
  const std::vector<data::ResidentDataset> test_sets = make_resident(data.test, runtime.devices);
  const auto ranks = static_cast<int>(options.settings.ranks);
  std::vector<std::unique_ptr<comm::Communicator>> threads;
  std::optional<StopAgreement> stop;
  if (processes != nullptr) {
    stop.emplace(interrupt, *processes);
  } else {
    if (ranks > 1) {
      threads = make_rank_group(devices_of_ranks(runtime.devices, ranks), communicator_options(options.settings));
    }
    stop.emplace(interrupt, ranks, ranks > 1 && threads.front()->can_be_recorded() ? kMaxQueued : 0);
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
  if (ranks == 1) return run_training_job(job, nullptr);
  std::atomic<int> code{exit_code::kDone};
  comm::run_rank_threads(std::move(threads), [&](comm::Communicator& communicator) {
    const std::size_t place = static_cast<std::size_t>(communicator.rank()) % runtime.devices.size();
    const int rank_code =
        run_training_job(job.on(runtime.devices[place], train_sets[place], test_sets[place]), &communicator);
    if (communicator.rank() == 0) code = rank_code;
  });
  return code;
}

// This process is one rank of several.
int train_as_process(TrainOptions& options, const comm::LaunchEnv& launch, CommandContext& context) {
  if (launch.rank > 0) context.err.set_prefix("[rank " + std::to_string(launch.rank) + "] ");
  // mpirun gives its first process a terminal of its own, and writes to a file what it reads there.
  context.out.set_plain();
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
    const int code = train(options, interrupt, processes.get(), context);
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
  TrainOptions options = read_train_options(arguments, reports);
  // Before seconds are spent on the data.
  if (!options.resumed && reports) RunFolder::check_new(options.out);
  if (launch) return train_as_process(options, *launch, context);
  const InterruptWatch interrupt;
  const HurryScope out_in_hurry(context.out, [&] { return interrupt.requested(); });
  const HurryScope err_in_hurry(context.err, [&] { return interrupt.requested(); });
  return train(options, interrupt, nullptr, context);
}

}  // namespace heddle::tools
