// `heddle train`: checks everything, then makes the run folder, then trains.
#include <atomic>

#include "engine/device/device_runtime.h"
#include "nccl_comm/rank_threads.h"
#include "tools/command.h"
#include "tools/data_source.h"
#include "tools/training_job.h"

namespace heddle::tools {
namespace {

// Frees the host copy of the images once the device has its own.
data::ResidentDataset make_resident(datasets::ImageDataset& part, Device device) {
  data::ResidentDataset resident(part.images, part.labels, part.height, part.width, part.channels, part.num_classes,
                                 device);
  // Ranks read it on streams of their own.
  runtime_for(device).synchronize(current_stream(device));
  part.images = {};
  part.labels = {};
  return resident;
}

int train(TrainOptions& options, CommandContext& context) {
  const InterruptWatch interrupt;
  const Runtime runtime = start_runtime(options.settings);
  for (const std::string& notice : runtime.notices) context.out.line("note     " + notice);
  for (const std::string& notice : options.notices) context.out.line("note     " + notice);

  datasets::ImageDatasetPair data = load_data(options.settings);
  print_data(data, options.settings, context.out, context.err);
  const ModelDescription description = describe_model(options.settings, data.train);
  const Json data_description = data_to_json(data);
  const data::ResidentDataset train_set = make_resident(data.train, runtime.device);
  const data::ResidentDataset test_set = make_resident(data.test, runtime.device);
  const auto ranks = static_cast<int>(options.settings.ranks);
  StopAgreement stop(interrupt, ranks);
  const TrainingJob job{.options = options,
                        .resumes = options.resumed.has_value(),
                        .runtime = runtime,
                        .description = description,
                        .data = data_description,
                        .train = train_set,
                        .test = test_set,
                        .interrupt = interrupt,
                        .stop = stop,
                        .out = context.out,
                        .err = context.err};
  if (ranks == 1) return run_training_job(job, nullptr);
  std::atomic<int> code{exit_code::kDone};
  comm::run_rank_threads(ranks, {}, [&](comm::Communicator& communicator) {
    const int rank_code = run_training_job(job, &communicator);
    if (communicator.rank() == 0) code = rank_code;
  });
  return code;
}

}  // namespace

int run_train(CommandContext& context) {
  const CommandSpec spec = train_spec();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  TrainOptions options = read_train_options(arguments);
  // Before seconds are spent on the data.
  if (!options.resumed) RunFolder::check_new(options.out);
  return train(options, context);
}

}  // namespace heddle::tools
