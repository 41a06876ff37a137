// `heddle eval`: how good a checkpoint is on a data set.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/data_source.h"
#include "tools/evaluation.h"
#include "tools/runtime.h"
#include "tools/saved_model.h"
#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

CommandSpec eval_spec() {
  return {.name = "heddle eval",
          .summary = "accuracy, loss, per-class table and confusion matrix of a checkpoint",
          .example =
              "heddle eval --checkpoint runs/first\n"
              "  heddle eval --checkpoint weights.safetensors --model lenet --json",
          .flags = {{"checkpoint", "PATH", "folder of a run, or a safetensors file"},
                    {"best", "", "of a run the checkpoint with the best test accuracy; else the newest"},
                    {"dataset", "NAME", join_names(find_setting("dataset")->choices), "that of the training"},
                    {"data-dir", "DIR", "folder of the data files", "that of the training"},
                    {"part", "NAME", "which images: test or train", "test"},
                    {"model", "NAME", "for weights that were not saved by heddle"},
                    {"device", "NAME", "auto, cpu, or cuda[:i]", "auto"},
                    {"threads", "N", "CPU threads", "as many as this process may use"},
                    {"json", "", "print one JSON object instead of tables"}}};
}

// 0/0 is "-" in a table.
std::string share(double value) { return std::isnan(value) ? "-" : fmt::format("{:.4f}", value); }

void print_classes(const ModelDescription& description, const data::ConfusionMatrix& confusion, Console& out) {
  out.line();
  out.line(fmt::format("{:<14}{:>11}{:>9}{:>9}{:>9}", "class", "precision", "recall", "F1", "support"));
  for (std::int64_t i = 0; i < confusion.num_classes(); ++i) {
    out.line(fmt::format("{:<14}{:>11}{:>9}{:>9}{:>9}", description.class_name(i), share(confusion.precision(i)),
                         share(confusion.recall(i)), share(confusion.f1(i)), confusion.label_count(i)));
  }
}

void print_confusion(const ModelDescription& description, const data::ConfusionMatrix& confusion, Console& out) {
  const std::int64_t n = confusion.num_classes();
  std::size_t width = 4;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) width = std::max(width, fmt::format("{}", confusion.count(i, j)).size());
  }
  out.line();
  out.line("confusion matrix: rows are the true classes, columns the predicted ones");
  std::string header = fmt::format("{:<18}", "");
  for (std::int64_t j = 0; j < n; ++j) header += fmt::format(" {:>{}}", j, width);
  out.line(header);
  for (std::int64_t i = 0; i < n; ++i) {
    std::string row = fmt::format("{:>3} {:<14}", i, description.class_name(i));
    for (std::int64_t j = 0; j < n; ++j) row += fmt::format(" {:>{}}", confusion.count(i, j), width);
    out.line(row);
  }
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const SavedModel& saved, const datasets::ImageDatasetPair& data, const Evaluation& result) {
  const data::ConfusionMatrix& confusion = result.confusion;
  Json classes = Json::array(), matrix = Json::array();
  for (std::int64_t i = 0; i < confusion.num_classes(); ++i) {
    classes.push_back({{"class", i},
                       {"name", saved.description.class_name(i)},
                       {"precision", number_or_null(confusion.precision(i))},
                       {"recall", number_or_null(confusion.recall(i))},
                       {"f1", number_or_null(confusion.f1(i))},
                       {"support", confusion.label_count(i)}});
    Json row = Json::array();
    for (std::int64_t j = 0; j < confusion.num_classes(); ++j) row.push_back(confusion.count(i, j));
    matrix.push_back(row);
  }
  return {{"checkpoint", saved.path},
          {"averaged_weights", saved.averaged},
          {"model", saved.description.model},
          {"data", data_to_json(data)},
          {"samples", result.metrics.samples()},
          {"loss", result.metrics.loss()},
          {"accuracy", result.metrics.accuracy()},
          {"classes", classes},
          {"confusion", matrix}};
}

// Where the data is: the flags, else what the model was trained on.
Settings data_settings(const ParsedArguments& arguments, const ModelDescription& description) {
  Settings settings;
  settings.dataset = description.dataset;
  settings.data_dir = description.data_dir;
  // For the reader of folders; images of other data sets get their size from fit_images().
  settings.image_size = description.image_size;
  if (arguments.has("dataset")) {
    set_from_text(settings, *find_setting("dataset"), arguments.get("dataset"));
    if (settings.dataset != description.dataset) settings.data_dir.clear();
  }
  if (arguments.has("data-dir")) settings.data_dir = arguments.get("data-dir");
  check_combinations(settings);
  return settings;
}

void check_fits(const ModelDescription& model, const datasets::ImageDataset& part) {
  if (part.height == model.height && part.width == model.width && part.channels == model.channels &&
      part.num_classes <= model.num_classes) {
    return;
  }
  throw UsageError(
      fmt::format("the data does not fit the model: images of {}x{}x{} in {} classes, the model takes "
                  "{}x{}x{} and has {} classes",
                  part.height, part.width, part.channels, part.num_classes, model.height, model.width, model.channels,
                  model.num_classes));
}

// Classes that are numbered by their names mean the same only if all names are the same.
void check_classes(const ModelDescription& model, const datasets::ImageDataset& part, const Settings& settings) {
  if (settings.dataset != "folder") return;
  for (std::int64_t i = 0; i < part.num_classes; ++i) {
    const std::string& name = part.class_names[static_cast<std::size_t>(i)];
    if (name == model.class_name(i)) continue;
    throw UsageError(fmt::format("the data does not fit the model: class {} is '{}', the model's is '{}'", i, name,
                                 model.class_name(i)));
  }
}

}  // namespace

int run_eval(CommandContext& context) {
  const CommandSpec spec = eval_spec();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  if (!arguments.has("checkpoint")) throw UsageError("heddle eval needs --checkpoint PATH");
  const std::string part_name = arguments.has("part") ? arguments.get("part") : "test";
  if (part_name != "test" && part_name != "train") {
    throw UsageError("--part is '" + part_name + "'; expected test or train");
  }
  const Runtime runtime = start_runtime(one_device_settings(arguments));
  const SavedModel saved =
      load_saved_model(arguments.get("checkpoint"), arguments.get("model"), runtime.device, arguments.is_on("best"));
  for (const std::string& file : saved.skipped) {
    context.err.line("heddle: warning: an older checkpoint is used, since this one is broken: " + file);
  }
  const Settings settings = data_settings(arguments, saved.description);
  datasets::ImageDatasetPair data = load_data(settings);
  datasets::ImageDataset& part = part_name == "test" ? data.test : data.train;
  fit_images(part, saved.description);
  check_fits(saved.description, part);
  check_classes(saved.description, part, settings);
  const data::ResidentDataset images(part.images, part.labels, part.height, part.width, part.channels,
                                     saved.description.num_classes, runtime.device);
  const Evaluation result = evaluate(*saved.module, images, saved.description.loader_options());
  if (!std::isfinite(result.metrics.loss())) {
    throw Error(fmt::format("{}: the loss on the {} images is NaN or infinite: the weights are broken, or too large",
                            saved.path, part_name));
  }
  if (arguments.is_on("json")) {
    context.out.line(to_json(saved, data, result).dump(2, ' ', false, Json::error_handler_t::replace));
    return exit_code::kDone;
  }
  context.out.line("weights  " + saved.path + (saved.averaged ? ": moving averages" : ""));
  context.out.line("model    " + saved.description.model);
  print_data(data, settings, context.out, context.err);
  context.out.line(fmt::format("accuracy {:.2f}% ({} of {} {} images)", result.metrics.accuracy() * 100,
                               result.metrics.correct(), result.metrics.samples(), part_name));
  context.out.line(fmt::format("loss     {:.4f}", result.metrics.loss()));
  print_classes(saved.description, result.confusion, context.out);
  print_confusion(saved.description, result.confusion, context.out);
  return exit_code::kDone;
}

}  // namespace heddle::tools
