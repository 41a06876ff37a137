// `heddle verify-resume`: whether a training with these settings can be stopped and resumed without a trace.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string_view>

#include "tools/command.h"
#include "tools/data_source.h"
#include "tools/train_options.h"
#include "tools/training_job.h"
#include "tools/usage_error.h"
#include "tools/verify_resume.h"

namespace heddle::tools {
namespace {

constexpr std::int64_t kEpochs = 2;
// Half a batch at the end: the last step of an epoch is another one than the others.
constexpr double kBatches = 5.5;
// Settings that the proof chooses itself.
constexpr std::string_view kFixed[] = {"evaluate-every",   "early-stop",       "time-limit",
                                       "checkpoint-every", "checkpoint-steps", "keep"};

CommandSpec verify_resume_spec() {
  CommandSpec spec{.name = "heddle verify-resume",
                   .summary = "prove that a training that stops and resumes gives the bits of one that does not",
                   .example =
                       "heddle verify-resume --preset best\n"
                       "  heddle verify-resume --model lenet-d2l --optimizer adamw --ema 0.999 --ranks 2"};
  spec.flags = setting_flags();
  std::erase_if(spec.flags, [](const FlagSpec& flag) {
    return std::find(std::begin(kFixed), std::end(kFixed), flag.name) != std::end(kFixed);
  });
  for (FlagSpec& flag : spec.flags) {
    if (flag.name == "epochs") flag.default_text = std::to_string(kEpochs);
  }
  spec.flags.push_back({"images", "N", "training images to use", "enough for five and a half batches", "Run"});
  return spec;
}

// The settings of `heddle train`, for a short run that nothing but the proof stops.
Settings read_settings(const ParsedArguments& arguments) {
  ParsedArguments settings_only = arguments;
  settings_only.flags.erase("images");
  Settings settings = read_train_options(settings_only).settings;
  if (!arguments.has("epochs")) {
    settings.epochs = std::max(kEpochs, static_cast<std::int64_t>(std::ceil(settings.warmup_epochs)));
  }
  const Settings defaults;
  settings.evaluate_every = defaults.evaluate_every;
  settings.early_stop = defaults.early_stop;
  settings.time_limit = defaults.time_limit;
  settings.checkpoint_every = defaults.checkpoint_every;
  settings.checkpoint_steps = defaults.checkpoint_steps;
  settings.keep = settings.epochs;
  return settings;
}

std::int64_t read_images(const ParsedArguments& arguments, const Settings& settings) {
  if (!arguments.has("images")) {
    return static_cast<std::int64_t>(std::ceil(kBatches * static_cast<double>(settings.batch_size)));
  }
  const std::string text = arguments.get("images");
  std::int64_t images = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), images);
  if (error != std::errc{} || end != text.data() + text.size() || images < 1) {
    throw UsageError("--images is '" + text + "'; expected a whole number from 1");
  }
  return images;
}

// The first images alone.
void cut(datasets::ImageDataset& part, std::int64_t images) {
  part.count = std::min(part.count, images);
  const auto count = static_cast<std::size_t>(part.count);
  part.images.resize(count * static_cast<std::size_t>(part.height * part.width * part.channels));
  part.labels.resize(count);
}

}  // namespace

int run_verify_resume(CommandContext& context) {
  const CommandSpec spec = verify_resume_spec();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  const Settings settings = read_settings(arguments);
  const std::int64_t images = read_images(arguments, settings);
  const InterruptWatch interrupt;
  const Runtime runtime = start_runtime(settings);
  datasets::ImageDatasetPair data = load_data(settings);
  const Json data_description = data_to_json(data);
  const ModelDescription description = prepare_data(settings, data);
  cut(data.train, images);
  cut(data.test, images);
  const ResidentParts train_sets = make_resident(data.train, runtime.devices);
  const ResidentParts test_sets = make_resident(data.test, runtime.devices);
  context.out.line(fmt::format("{} on {}, {} images of {}, {} rank{}", settings.model, runtime.device.to_string(),
                               train_sets.front().size(), data.name, settings.ranks, settings.ranks == 1 ? "" : "s"));
  const int code = verify_resume({.settings = settings,
                                  .runtime = runtime,
                                  .description = description,
                                  .data = data_description,
                                  .train = train_sets,
                                  .test = test_sets,
                                  .interrupt = interrupt,
                                  .out = context.out,
                                  .err = context.err});
  if (code > exit_code::kUsage) context.err.line(fmt::format("heddle: interrupted by {}", interrupt.signal_name()));
  return code;
}

}  // namespace heddle::tools
