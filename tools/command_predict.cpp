// `heddle predict`: what a model sees in a picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/ops/ops.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/evaluation.h"
#include "tools/image_input.h"
#include "tools/runtime.h"
#include "tools/saved_model.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

constexpr std::size_t kShownClasses = 3;
constexpr std::size_t kBatchSize = 500;

CommandSpec predict_spec() {
  return {.name = "heddle predict",
          .summary = "class and probabilities of PNG or IDX images",
          .example =
              "heddle predict --checkpoint runs/first shoe.png\n"
              "  heddle predict --checkpoint runs/first t10k-images-idx3-ubyte.gz --range 0:5",
          .flags = {{"checkpoint", "PATH", "folder of a run, or a safetensors file"},
                    {"best", "", "of a run the checkpoint with the best test accuracy; else the newest"},
                    {"range", "N|B:E", "images of an IDX file: one, or from B to before E", "the first ten"},
                    {"invert", "NAME",
                     "auto, on or off: swap dark and bright; auto: where the border is bright, "
                     "unless the model has learned from PNG files; the others know bright things on black",
                     "auto"},
                    {"model", "NAME", "for weights that were not saved by heddle"},
                    {"device", "NAME", "auto, cpu, or cuda[:i]", "auto"},
                    {"threads", "N", "CPU threads", "as many as this process may use"},
                    {"json", "", "print one JSON array instead of lines"}},
          .positional_name = "IMAGE...",
          .positional_help = "PNG or IDX files, told apart by their content"};
}

Invert parse_invert(const std::string& text) {
  if (text.empty() || text == "auto") return Invert::automatic;
  if (text == "on") return Invert::on;
  if (text == "off") return Invert::off;
  throw UsageError("--invert is '" + text + "'; expected auto, on or off");
}

// Probabilities of images [begin, begin + n), one row an image.
std::vector<float> predict_batch(const SavedModel& saved, const std::vector<InputImage>& images, std::size_t begin,
                                 std::size_t n, Device device) {
  const ModelDescription& d = saved.description;
  std::vector<std::uint8_t> pixels;
  for (std::size_t i = begin; i < begin + n; ++i) {
    pixels.insert(pixels.end(), images[i].pixels.begin(), images[i].pixels.end());
  }
  const std::vector<std::uint8_t> no_labels(n);
  const data::ResidentDataset dataset(pixels, no_labels, d.height, d.width, d.channels, d.num_classes, device);
  data::DataLoaderOptions options = d.loader_options();
  options.batch_size = static_cast<std::int64_t>(n);
  options.shuffle = false;
  data::DataLoader loader(dataset, options);
  loader.start_epoch(0);
  return ops::softmax(saved.module->forward(loader.next()->images)).data().to_vector<float>();
}

std::vector<std::size_t> best_classes(const float* probabilities, std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return probabilities[a] > probabilities[b]; });
  order.resize(std::min(count, kShownClasses));
  return order;
}

std::string text_line(const std::string& name, const ModelDescription& d, const float* probabilities) {
  std::string line = name + ":";
  for (const std::size_t k : best_classes(probabilities, static_cast<std::size_t>(d.num_classes))) {
    line += fmt::format("  {} {:.1f}%", d.class_name(static_cast<std::int64_t>(k)), 100.0 * double{probabilities[k]});
  }
  return line;
}

Json json_row(const std::string& name, const ModelDescription& d, const float* probabilities) {
  Json classes = Json::array();
  for (const std::size_t k : best_classes(probabilities, static_cast<std::size_t>(d.num_classes))) {
    classes.push_back({{"class", k},
                       {"name", d.class_name(static_cast<std::int64_t>(k))},
                       {"probability", double{probabilities[k]}}});
  }
  return {{"image", name}, {"classes", classes}};
}

ImageInput read_all_images(const ParsedArguments& arguments, const ModelDescription& d) {
  ImageInputOptions options{.height = d.height,
                            .width = d.width,
                            .channels = d.channels,
                            .source_height = d.source_height,
                            .source_width = d.source_width};
  options.invert = parse_invert(arguments.get("invert"));
  // What such a model has learned from looked like the pictures that it is shown.
  if (d.dataset == "folder" && options.invert == Invert::automatic) options.invert = Invert::off;
  if (arguments.has("range")) options.range = parse_range(arguments.get("range"));
  ImageInput all;
  for (const std::string& path : arguments.positionals) {
    ImageInput input = read_images(path, options);
    if (input.images.empty()) throw IoError(path, "holds no images");
    std::move(input.images.begin(), input.images.end(), std::back_inserter(all.images));
    std::move(input.notices.begin(), input.notices.end(), std::back_inserter(all.notices));
  }
  return all;
}

}  // namespace

int run_predict(CommandContext& context) {
  const CommandSpec spec = predict_spec();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  if (!arguments.has("checkpoint")) throw UsageError("heddle predict needs --checkpoint PATH");
  if (arguments.positionals.empty()) throw UsageError("heddle predict needs at least one image file");
  const Runtime runtime = start_runtime(one_device_settings(arguments));
  const SavedModel saved =
      load_saved_model(arguments.get("checkpoint"), arguments.get("model"), runtime.device, arguments.is_on("best"));
  for (const std::string& file : saved.skipped) {
    context.err.line("heddle: warning: an older checkpoint is used, since this one is broken: " + file);
  }
  const ImageInput input = read_all_images(arguments, saved.description);
  // Into standard error, so that the output is nothing but the answers.
  for (const std::string& notice : input.notices) context.err.line("note: " + notice);

  const InferenceScope scope(*saved.module);
  const auto classes = static_cast<std::size_t>(saved.description.num_classes);
  Json rows = Json::array();
  for (std::size_t begin = 0; begin < input.images.size(); begin += kBatchSize) {
    const std::size_t n = std::min(kBatchSize, input.images.size() - begin);
    const std::vector<float> probabilities = predict_batch(saved, input.images, begin, n, runtime.device);
    for (std::size_t i = 0; i < n; ++i) {
      const std::string& name = input.images[begin + i].name;
      const float* const row = probabilities.data() + i * classes;
      if (!std::all_of(row, row + classes, [](float p) { return std::isfinite(p); })) {
        throw Error(
            fmt::format("{}: the model's outputs for {} are NaN or infinite: its weights are broken, or too large",
                        saved.path, name));
      }
      if (arguments.is_on("json")) {
        rows.push_back(json_row(name, saved.description, row));
      } else {
        context.out.line(text_line(name, saved.description, row));
      }
    }
  }
  if (arguments.is_on("json")) context.out.line(rows.dump(2, ' ', false, Json::error_handler_t::replace));
  return exit_code::kDone;
}

}  // namespace heddle::tools
