// `heddle train`: checks everything, then makes the run folder, then trains.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "engine/core/version.h"
#include "tools/command.h"
#include "tools/config_file.h"
#include "tools/data_source.h"
#include "tools/runtime.h"
#include "tools/system_info.h"
#include "tools/train_options.h"
#include "tools/training_run.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

std::string time_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

// run.json of a new run: enough to repeat it, with `heddle train --config run.json`.
Json describe_run(const TrainOptions& options, const Runtime& runtime, const datasets::ImageDatasetPair& data,
                  const nn::Module& model) {
  const CpuInfo cpu = cpu_info();
  Json run;
  run["heddle"] = version();
  run["started"] = time_now();
  run["preset"] = options.preset;
  run["settings"] = settings_to_json(options.settings);
  run["seed"] = options.settings.seed;
  run["device"] = {{"name", runtime.device.to_string()},
                   {"hardware", runtime.device_name},
                   {"backend", runtime.backend_name},
                   {"simulated", runtime.simulated}};
  run["threads"] = {{"count", runtime.threads}, {"source", runtime.threads_source}};
  run["machine"] = {
      {"host", host_name()}, {"system", operating_system()}, {"cpu", cpu.model}, {"cpu_features", cpu.features}};
  run["data"] = data_to_json(data);
  run["model"] = {{"name", options.settings.model}, {"parameters", model.num_parameters()}};
  return run;
}

// A resumed run must see the data it began with.
void check_same_data(const Json& run, const Json& now, const std::string& path) {
  if (!run.contains("data") || !run["data"].contains("files")) return;
  const auto checksums = [](const Json& description) {
    std::string text;
    for (const Json& file : description["files"]) text += fmt::format(" {}", file.value("crc32", "?"));
    return text.empty() ? std::string(" none") : text;
  };
  if (checksums(run["data"]) == checksums(now)) return;
  throw UsageError(fmt::format("--resume {}: the data files are not those of the run: it had checksums{}, now{}", path,
                               checksums(run["data"]), checksums(now)));
}

void print_start(const TrainOptions& options, const Runtime& runtime, const nn::Module& model, Console& out) {
  out.line(fmt::format("device   {}: {}; {}", runtime.device.to_string(), runtime.device_name, runtime.backend_name));
  out.line(fmt::format("threads  {} ({})", runtime.threads, runtime.threads_source));
  out.line(fmt::format("model    {}, {} parameters", options.settings.model, model.num_parameters()));
  out.line(fmt::format("seed     {}", options.settings.seed));
}

// Frees the host copy of the images once the device has its own.
data::ResidentDataset make_resident(datasets::ImageDataset& part, Device device) {
  data::ResidentDataset resident(part.images, part.labels, part.height, part.width, part.channels, part.num_classes,
                                 device);
  part.images = {};
  part.labels = {};
  return resident;
}

Json describe_step(const StepWork& work) {
  Json step = {{"launches", work.queued.launches},
               {"read_bytes", work.queued.read_nbytes},
               {"written_bytes", work.queued.written_nbytes}};
  if (work.recorded) {
    step["recorded"] = {{"kernels", work.recorded->kernels},
                        {"copies", work.recorded->copies},
                        {"fills", work.recorded->fills},
                        {"others", work.recorded->others}};
  }
  return step;
}

int finish(const TrainOptions& options, Trainer& trainer, RunFolder& folder, Json run, int code, Console& out) {
  const checkpoint::TrainingState& state = trainer.state();
  run["result"] = {{"ended", time_now()},
                   {"finished", code == exit_code::kDone},
                   {"epochs", state.epoch},
                   {"steps", state.step},
                   {"best_test_accuracy", state.best_metric.value_or(0.0)},
                   {"best_epoch", state.best_epoch},
                   {"weights_crc32", crc32_text(trainer.weights_crc32())}};
  if (const std::optional<StepWork> work = trainer.step_work()) run["result"]["step"] = describe_step(*work);
  folder.write_description(run);
  if (code == exit_code::kDone) {
    out.line(fmt::format("done     {} epochs; best test accuracy {:.2f}% in epoch {}; weights crc32 {}; run folder {}",
                         options.settings.epochs, state.best_metric.value_or(0.0) * 100, state.best_epoch,
                         crc32_text(trainer.weights_crc32()), folder.path()));
  }
  return code;
}

// True if nothing is left to do.
bool report_if_finished(const TrainOptions& options, const Trainer& trainer, Console& out) {
  const checkpoint::TrainingState& state = trainer.state();
  if (state.epoch < options.settings.epochs) return false;
  if (state.epoch > options.settings.epochs) {
    throw UsageError(fmt::format(
        "--epochs {}: the run has {} finished epochs already; to train on give a number above {}, or leave it out",
        options.settings.epochs, state.epoch, state.epoch));
  }
  out.line(
      fmt::format("the run is finished: {} of {} epochs are done, best test accuracy {:.2f}% in epoch {}; "
                  "--epochs N with a larger N trains on",
                  state.epoch, options.settings.epochs, state.best_metric.value_or(0.0) * 100, state.best_epoch));
  return true;
}

int train(TrainOptions& options, CommandContext& context) {
  const InterruptWatch interrupt;
  const Runtime runtime = start_runtime(options.settings);
  for (const std::string& notice : runtime.notices) context.out.line("note     " + notice);
  for (const std::string& notice : options.notices) context.out.line("note     " + notice);

  datasets::ImageDatasetPair data = load_data(options.settings);
  print_data(data, options.settings, context.out, context.err);
  const ModelDescription description = describe_model(options.settings, data.train);
  const std::shared_ptr<nn::Module> model = make_model(description);
  Philox random(static_cast<std::uint64_t>(options.settings.seed));
  model->reset_parameters(random);
  model->to(runtime.device);

  Json run = describe_run(options, runtime, data, *model);
  const data::ResidentDataset train_set = make_resident(data.train, runtime.device);
  const data::ResidentDataset test_set = make_resident(data.test, runtime.device);
  Trainer trainer(options.settings, *model, train_set, description.loader_options());
  print_start(options, runtime, *model, context.out);
  if (interrupt.requested()) {
    context.err.line(
        fmt::format("heddle: interrupted by {} before the first step; nothing was written", interrupt.signal_name()));
    return interrupt.exit_code();
  }

  const bool resumes = options.resumed.has_value();
  RunFolder folder = resumes               ? std::move(*options.resumed)
                     : options.out.empty() ? RunFolder::create_named(options.settings.model, options.settings.dataset)
                                           : RunFolder::create(options.out);
  CheckpointStore checkpoints(folder.checkpoints_path(), options.settings, description);
  std::string announcement = "run      " + folder.path();
  if (resumes) {
    const Json before = folder.read_description();
    check_same_data(before, run["data"], folder.path());
    for (const std::string& skipped : checkpoints.load_newest(trainer)) {
      context.err.line("heddle: warning: an older checkpoint is used, since this one is broken: " + skipped);
    }
    if (report_if_finished(options, trainer, context.out)) return exit_code::kDone;
    run["started"] = before.value("started", run["started"]);
    run["preset"] = before.value("preset", run["preset"]);
    run["resumed"] = before.value("resumed", Json::array());
    run["resumed"].push_back(time_now());
    folder.drop_metrics_after(trainer.state().epoch);
    announcement = fmt::format("resume   {} from epoch {}, step {}", folder.path(), trainer.state().epoch + 1,
                               trainer.state().step);
  }
  // Announced when it can be resumed: whatever happens from here on, --resume finds its description.
  folder.write_description(run);
  context.out.line(announcement);
  TrainingRun loop({.settings = options.settings,
                    .trainer = trainer,
                    .test = test_set,
                    .folder = folder,
                    .checkpoints = checkpoints,
                    .interrupt = interrupt,
                    .out = context.out});
  const int code = loop.run();
  return finish(options, trainer, folder, std::move(run), code, context.out);
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
