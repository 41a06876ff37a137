#include "tools/training_job.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "datasets/image_file.h"
#include "engine/core/version.h"
#include "engine/device/device_runtime.h"
#include "engine/nn/batch_norm.h"
#include "nccl_comm/rank_threads.h"
#include "nccl_comm/text_exchange.h"
#include "tools/command.h"
#include "tools/config_file.h"
#include "tools/data_source.h"
#include "tools/rank_group.h"
#include "tools/rank_process.h"
#include "tools/rank_stream.h"
#include "tools/run_plan.h"
#include "tools/system_info.h"
#include "tools/training_run.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

std::string time_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

// run.json of a new run: enough to repeat it, with `heddle train --config run.json`.
Json describe_run(const TrainingJob& job, const nn::Module& model) {
  const TrainOptions& options = job.options;
  const Runtime& runtime = job.runtime;
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
  run["data"] = job.data;
  run["model"] = {{"name", options.settings.model}, {"parameters", model.num_parameters()}};
  run["classes"] = job.description.class_names;
  return run;
}

// A resumed run must see the data it began with.
void check_same_data(const Json& run, const Json& now, const std::string& path) {
  if (!run.contains("data")) return;
  const auto checksums = [](const Json& description) {
    std::string text;
    for (const Json& file : description["files"]) text += fmt::format(" {}", file.value("crc32", "?"));
    return text.empty() ? std::string(" none") : text;
  };
  if (checksums(run["data"]) == checksums(now)) return;
  throw UsageError(fmt::format("--resume {}: the data files are not those of the run: it had checksums{}, now{}", path,
                               checksums(run["data"]), checksums(now)));
}

// Images of a rank in a full batch: "64", or "12 to 13".
std::string share_text(const Settings& settings, int ranks) {
  std::int64_t least = settings.batch_size / ranks, most = least + (settings.batch_size % ranks == 0 ? 0 : 1);
  if (settings.reproducible) {
    std::vector<std::int64_t> shares;
    for (int rank = 0; rank < ranks; ++rank) {
      const comm::ShardRange range = comm::shards_of_rank(rank, ranks);
      std::int64_t images = 0;
      for (int shard = range.begin; shard < range.end; ++shard) {
        images += settings.batch_size / comm::kMicroShards + (shard < settings.batch_size % comm::kMicroShards ? 1 : 0);
      }
      shares.push_back(images);
    }
    least = *std::min_element(shares.begin(), shares.end());
    most = *std::max_element(shares.begin(), shares.end());
  }
  return least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
}

void print_start(const TrainingJob& job, const nn::Module& model, const comm::Communicator* communicator) {
  const TrainOptions& options = job.options;
  const Runtime& runtime = job.runtime;
  Console& out = job.out;
  std::string names;
  for (const Device device : runtime.devices) names += (names.empty() ? "" : ", ") + device.to_string();
  out.line(fmt::format("device   {}: {}; {}", names, runtime.device_name, runtime.backend_name));
  out.line(fmt::format("threads  {} ({})", runtime.threads, runtime.threads_source));
  if (communicator != nullptr) {
    // Of interest where a library could place gradients better than in ordinary memory.
    const std::string memory = job.device.is_cpu() ? "" : " from " + communicator->exchanged_memory();
    out.line(fmt::format("ranks    {} in {}, {} images of a batch of {} each, exchanged by {}{}",
                         communicator->world_size(), job.stop.are_processes() ? "a process each" : "this process",
                         share_text(options.settings, communicator->world_size()), options.settings.batch_size,
                         communicator->name(), memory));
  }
  if (options.settings.reproducible) {
    out.line(
        fmt::format("shards   {} a batch, for the same bits with any number of ranks and threads", comm::kMicroShards));
  }
  out.line(fmt::format("model    {}, {} parameters", options.settings.model, model.num_parameters()));
  out.line(fmt::format("seed     {}", options.settings.seed));
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

void finish(const TrainOptions& options, Trainer& trainer, RunFolder& folder, Json run, Console& out) {
  const checkpoint::TrainingState& state = trainer.state();
  const bool finished = options.finished;
  run["result"] = {{"ended", time_now()},
                   {"finished", finished},
                   {"stopped_early", finished && state.epoch < options.settings.epochs},
                   {"epochs", state.epoch},
                   {"steps", state.step},
                   {"best_test_accuracy", state.best_metric.value_or(0.0)},
                   {"best_epoch", state.best_epoch},
                   {"peak_resident_bytes", peak_resident_nbytes()},
                   {"weights_crc32", crc32_text(trainer.weights_crc32())}};
  if (const std::optional<StepWork> work = trainer.step_work()) run["result"]["step"] = describe_step(*work);
  folder.write_description(run);
  if (finished) {
    out.line(fmt::format("done     {} epochs; best test accuracy {:.2f}% in epoch {}; weights crc32 {}; run folder {}",
                         state.epoch, state.best_metric.value_or(0.0) * 100, state.best_epoch,
                         crc32_text(trainer.weights_crc32()), folder.path()));
  }
}

// Nothing is left to do.
void report_finished(const TrainOptions& options, const Trainer& trainer, Console& out) {
  const checkpoint::TrainingState& state = trainer.state();
  if (state.epoch > options.settings.epochs) {
    throw UsageError(fmt::format(
        "--epochs {}: the run has {} finished epochs already; to train on give a number above {}, or leave it out",
        options.settings.epochs, state.epoch, state.epoch));
  }
  const bool early = state.epoch < options.settings.epochs;
  out.line(
      fmt::format("the run is finished: {} of {} epochs are done{}, best test accuracy {:.2f}% in epoch {}; "
                  "--{} N with a larger N trains on",
                  state.epoch, options.settings.epochs, early ? " (early stop)" : "",
                  state.best_metric.value_or(0.0) * 100, state.best_epoch, early ? "early-stop" : "epochs"));
}

// A batch norm in training needs more than one value of a channel, in every pass of the run. model: on the CPU.
void check_batch_norms(const TrainingJob& job, nn::Module& model, int ranks) {
  const Settings& settings = job.options.settings;
  if (settings.sync_bn && nn::batch_norms_of(model).empty()) {
    throw UsageError(fmt::format("--sync-bn: the model {} has no batch norm; leave it out", settings.model));
  }
  const comm::BatchCut cut = batch_cut(settings, ranks);
  const std::int64_t images = job.train.size();
  if (!comm::has_pass_of_one(settings.batch_size, images, cut)) return;
  const Shape& shape = job.train.images().shape();
  const std::string layer = nn::batch_norm_with_one_value(model, {shape[1], shape[2], shape[3]});
  if (layer.empty()) return;
  const std::int64_t last = images % std::min(settings.batch_size, images);
  std::string where = fmt::format("batches of {} of the {} images", std::min(settings.batch_size, images), images);
  if (last > 0) where += fmt::format(", the last one of {},", last);
  if (settings.reproducible) where += fmt::format(" in {} micro-shards", comm::kMicroShards);
  if (ranks > 1 && !settings.reproducible) where += fmt::format(" on {} ranks", ranks);
  if (settings.accumulate > 1) where += fmt::format(" in {} pieces each", settings.accumulate);
  const comm::NearestBatchSizes nearest = comm::batch_sizes_without_pass_of_one(settings.batch_size, images, cut);
  std::string advice = "no batch size of this training does";
  if (nearest.below > 0 && nearest.above > 0) {
    advice = fmt::format("--batch-size {} or {} works", nearest.below, nearest.above);
  } else if (nearest.below + nearest.above > 0) {
    advice = fmt::format("--batch-size {} works", std::max(nearest.below, nearest.above));
  }
  throw UsageError(
      fmt::format("--batch-size {}: {} leave a pass of one image, on which the batch norm {} has one value per "
                  "channel and no variance; {}",
                  settings.batch_size, where, layer, advice));
}

// What rank 0 has besides what every rank has.
struct Reporter {
  RunFolder folder;
  CheckpointStore checkpoints;
  Json run;
};

Reporter make_reporter(const TrainingJob& job, const nn::Module& model) {
  TrainOptions& options = job.options;
  RunFolder folder = options.resumed       ? std::move(*options.resumed)
                     : options.out.empty() ? RunFolder::create_named(options.settings.model, options.settings.dataset)
                                           : RunFolder::create(options.out);
  CheckpointStore checkpoints(folder.checkpoints_path(), options.settings, job.description);
  return {std::move(folder), std::move(checkpoints), describe_run(job, model)};
}

// Finds the checkpoint to continue from, on rank 0, and loads it on all ranks.
void load_checkpoint(const TrainingJob& job, Trainer& trainer, const std::optional<Reporter>& reporter,
                     comm::Communicator* communicator) {
  std::string path;
  if (reporter) {
    check_same_data(reporter->folder.read_description(), reporter->run["data"], reporter->folder.path());
    std::vector<std::string> broken;
    path = reporter->checkpoints.find_newest(broken);
    for (const std::string& file : broken) {
      job.err.line("heddle: warning: an older checkpoint is used, since this one is broken: " + file);
    }
    if (path.empty() && reporter->folder.has_metrics()) {
      job.err.line(
          "heddle: warning: the run has no checkpoint, so it starts anew, and what metrics.jsonl has of it goes");
    }
  }
  if (communicator != nullptr) path = comm::broadcast_text(*communicator, path, 0, job.device, "checkpoint");
  if (!path.empty()) CheckpointStore::load(trainer, path, job.options.settings);
}

// Stops the run if the ranks do not train what one rank would.
void pass_parity_gate(const TrainingJob& job, Trainer& trainer, const comm::Communicator* communicator) {
  if (communicator == nullptr || communicator->world_size() == 1 || !job.options.settings.parity_gate) return;
  const comm::ParityResult result = trainer.check_parity();
  if (communicator->rank() != 0) return;
  job.out.line(fmt::format("parity   a step of {} ranks is that of one, up to a relative difference of {:.1e}",
                           communicator->world_size(), result.largest));
}

// Announced when it can be resumed: whatever happens from here on, --resume finds its description.
void announce(const TrainingJob& job, const Trainer& trainer, Reporter& reporter) {
  std::string announcement = "run      " + reporter.folder.path();
  if (job.resumes) {
    const Json before = reporter.folder.read_description();
    Json& run = reporter.run;
    run["started"] = before.value("started", run["started"]);
    run["preset"] = before.value("preset", run["preset"]);
    run["resumed"] = before.value("resumed", Json::array());
    run["resumed"].push_back(time_now());
    reporter.folder.drop_metrics_after(trainer.state().epoch);
    drop_events_after(reporter.folder.path(), trainer.state().step);
    announcement = fmt::format("resume   {} from epoch {}, step {}", reporter.folder.path(), trainer.state().epoch + 1,
                               trainer.state().step);
  }
  reporter.folder.write_description(reporter.run);
  if (!datasets::png_supported()) {
    job.out.line("note     this build has no libpng, so evaluation.json and the event files get no pictures");
  }
  job.out.line(announcement);
}

}  // namespace

int run_training_job(const TrainingJob& job, comm::Communicator* communicator) {
  const Settings& settings = job.options.settings;
  const RankStream stream(job.device, communicator);
  const bool reports = communicator == nullptr || communicator->rank() == 0;
  const std::shared_ptr<nn::Module> model = make_model(job.description);
  Philox random(static_cast<std::uint64_t>(settings.seed));
  model->reset_parameters(random);
  check_batch_norms(job, *model, communicator == nullptr ? 1 : communicator->world_size());
  model->to(job.device);
  Trainer trainer(settings, *model, job.train, job.description.loader_options(), communicator,
                  [&job] { return make_model(job.description); });
  Evaluator evaluator(*model, job.test, job.description.loader_options(), settings.graph, communicator,
                      trainer.micro_shards());
  if (reports) print_start(job, *model, communicator);
  if (communicator == nullptr && job.interrupt.requested()) {
    job.err.line(fmt::format("heddle: interrupted by {} before the first step; nothing was written",
                             job.interrupt.signal_name()));
    return job.interrupt.exit_code();
  }
  // A new run that fails here leaves no folder.
  if (!job.resumes) pass_parity_gate(job, trainer, communicator);
  std::optional<Reporter> reporter;
  if (reports) reporter.emplace(make_reporter(job, *model));
  if (job.resumes) {
    load_checkpoint(job, trainer, reporter, communicator);
    // The same on all ranks.
    if (is_finished(settings, trainer.state())) {
      if (reports) report_finished(job.options, trainer, job.out);
      if (reports) job.options.finished = true;
      return exit_code::kDone;
    }
    pass_parity_gate(job, trainer, communicator);
  }
  if (reports) announce(job, trainer, *reporter);
  std::optional<RunReport> report;
  std::optional<TrainingEvents> events;
  if (reports) {
    events.emplace(reporter->folder.path());
    report.emplace(RunReport{reporter->folder, reporter->checkpoints, *events, job.test, job.out});
  }
  TrainingRun loop({.settings = settings,
                    .trainer = trainer,
                    .evaluator = evaluator,
                    .interrupt = job.interrupt,
                    .stop = job.stop,
                    .communicator = communicator,
                    .report = report ? &*report : nullptr});
  const int code = loop.run();
  if (reports) {
    job.options.finished = is_finished(settings, trainer.state());
    finish(job.options, trainer, reporter->folder, std::move(reporter->run), job.out);
  }
  const bool interrupted = code != exit_code::kDone && code != exit_code::kFailed;
  // Behind the last thing that is written.
  if (interrupted) job.stop.leave_together();
  return code;
}

RankGroup make_thread_ranks(const Settings& settings, const Runtime& runtime) {
  const auto ranks = static_cast<int>(settings.ranks);
  if (ranks == 1) return {};
  return make_rank_group(devices_of_ranks(runtime.devices, ranks), communicator_options(settings));
}

std::int64_t steps_ahead(const RankGroup& group) {
  return !group.empty() && group.front()->can_be_recorded() ? kMaxQueued : 0;
}

int run_training_threads(const TrainingJob& job, RankGroup group, const ResidentParts& train,
                         const ResidentParts& test) {
  if (group.empty()) return run_training_job(job, nullptr);
  std::atomic<int> code{exit_code::kDone};
  comm::run_rank_threads(std::move(group), [&](comm::Communicator& communicator) {
    const std::size_t place = static_cast<std::size_t>(communicator.rank()) % job.runtime.devices.size();
    const int rank_code =
        run_training_job(job.on(job.runtime.devices[place], train[place], test[place]), &communicator);
    if (communicator.rank() == 0) code = rank_code;
  });
  return code;
}

ResidentParts make_resident(datasets::ImageDataset& part, const std::vector<Device>& devices) {
  ResidentParts resident;
  for (const Device device : devices) {
    resident.emplace_back(part.images, part.labels, part.height, part.width, part.channels, part.num_classes, device);
    // Ranks read it on streams of their own.
    runtime_for(device).synchronize(current_stream(device));
  }
  part.images = {};
  part.labels = {};
  return resident;
}

}  // namespace heddle::tools
