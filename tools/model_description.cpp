#include "tools/model_description.h"

#include <algorithm>
#include <cmath>

#include "datasets/resize.h"
#include "engine/core/error.h"
#include "models/model_list.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

// Mean and deviation of one channel over all pixels, of values in [0,1].
std::pair<float, float> channel_statistics(const datasets::ImageDataset& set, std::int64_t channel) {
  std::array<std::uint64_t, 256> histogram{};
  const auto step = static_cast<std::size_t>(set.channels);
  for (auto i = static_cast<std::size_t>(channel); i < set.images.size(); i += step) ++histogram[set.images[i]];
  double count = 0, sum = 0, squares = 0;
  for (std::size_t value = 0; value < histogram.size(); ++value) {
    const double x = static_cast<double>(value) / 255, n = static_cast<double>(histogram[value]);
    count += n;
    sum += n * x;
    squares += n * x * x;
  }
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
  // A channel of one value has no deviation: it becomes 0 everywhere.
  return {static_cast<float>(mean), deviation > 0 ? static_cast<float>(deviation) : 1.0f};
}

}  // namespace

data::DataLoaderOptions ModelDescription::loader_options() const {
  data::DataLoaderOptions options;
  for (std::size_t c = 0; c < mean.size() && c < options.mean.size(); ++c) {
    options.mean[c] = mean[c];
    options.stddev[c] = stddev[c];
  }
  return options;
}

std::string ModelDescription::class_name(std::int64_t i) const {
  const auto place = static_cast<std::size_t>(i);
  return place < class_names.size() ? class_names[place] : std::to_string(i);
}

ModelDescription describe_model(const Settings& settings, const datasets::ImageDataset& train) {
  ModelDescription description{.model = settings.model,
                               .channels = train.channels,
                               .height = train.height,
                               .width = train.width,
                               .num_classes = train.num_classes,
                               .class_names = train.class_names,
                               .dataset = settings.dataset,
                               .data_dir = settings.data_dir,
                               .image_size = settings.image_size};
  if (train.channels > GatherImagesParams::kMaxChannels) {
    throw NotSupported(join_text("the images have ", train.channels, " channels; at most ",
                                 GatherImagesParams::kMaxChannels, " are supported"));
  }
  for (std::int64_t c = 0; c < train.channels; ++c) {
    const auto [mean, deviation] =
        settings.normalize == "data" ? channel_statistics(train, c) : std::pair<float, float>(0.0f, 1.0f);
    description.mean.push_back(mean);
    description.stddev.push_back(deviation);
  }
  return description;
}

void fit_images(datasets::ImageDataset& part, const ModelDescription& d) {
  if (part.height != d.source_height || part.width != d.source_width || part.channels != d.source_channels) return;
  datasets::resize_images(part, d.height, d.width);
  datasets::repeat_channels(part, d.channels);
}

ModelDescription prepare_data(const Settings& settings, datasets::ImageDatasetPair& data) {
  const std::int64_t wanted = models::find_model(settings.model).in_channels;
  ModelDescription change{.channels = wanted == 0 ? data.train.channels : wanted,
                          .height = settings.image_size == 0 ? data.train.height : settings.image_size,
                          .width = settings.image_size == 0 ? data.train.width : settings.image_size,
                          .source_channels = data.train.channels,
                          .source_height = data.train.height,
                          .source_width = data.train.width};
  if (change.channels != change.source_channels && change.source_channels != 1) {
    throw UsageError(join_text("model ", settings.model, " takes images of ", change.channels, " channels, those of ",
                               settings.dataset, " have ", change.source_channels));
  }
  fit_images(data.train, change);
  fit_images(data.test, change);
  ModelDescription description = describe_model(settings, data.train);
  const bool changed = change.channels != change.source_channels || change.height != change.source_height ||
                       change.width != change.source_width;
  if (changed) {
    description.source_channels = change.source_channels;
    description.source_height = change.source_height;
    description.source_width = change.source_width;
  }
  return description;
}

std::shared_ptr<nn::Module> make_model(const ModelDescription& description) {
  return models::make_model(description.model, {.in_channels = description.channels,
                                                .height = description.height,
                                                .width = description.width,
                                                .num_classes = description.num_classes});
}

Json to_json(const ModelDescription& d) {
  Json json = {{"model", d.model},     {"channels", d.channels},       {"height", d.height},
               {"width", d.width},     {"num_classes", d.num_classes}, {"class_names", d.class_names},
               {"dataset", d.dataset}, {"data_dir", d.data_dir},       {"mean", d.mean},
               {"stddev", d.stddev}};
  if (d.source_channels != 0) {
    json["source"] = {{"channels", d.source_channels}, {"height", d.source_height}, {"width", d.source_width}};
  }
  if (d.image_size != 0) json["image_size"] = d.image_size;
  return json;
}

ModelDescription model_description_from_json(const Json& json) {
  ModelDescription d;
  try {
    json.at("model").get_to(d.model);
    json.at("channels").get_to(d.channels);
    json.at("height").get_to(d.height);
    json.at("width").get_to(d.width);
    json.at("num_classes").get_to(d.num_classes);
    json.at("class_names").get_to(d.class_names);
    json.at("dataset").get_to(d.dataset);
    json.at("data_dir").get_to(d.data_dir);
    json.at("mean").get_to(d.mean);
    json.at("stddev").get_to(d.stddev);
    if (json.contains("source")) {
      json["source"].at("channels").get_to(d.source_channels);
      json["source"].at("height").get_to(d.source_height);
      json["source"].at("width").get_to(d.source_width);
    }
    if (json.contains("image_size")) json["image_size"].get_to(d.image_size);
  } catch (const Json::exception& error) {
    throw InvalidArgument(std::string("the description of the model is broken: ") + error.what());
  }
  const auto channels = static_cast<std::size_t>(d.channels);
  HEDDLE_CHECK(d.channels >= 1 && d.mean.size() == channels && d.stddev.size() == channels,
               "the description of the model is broken: ", d.channels, " channels, ", d.mean.size(), " means, ",
               d.stddev.size(), " deviations");
  HEDDLE_CHECK(d.num_classes >= 1 && d.num_classes <= 256 && d.height >= 1 && d.height <= 4096 && d.width >= 1 &&
                   d.width <= 4096 && d.channels <= GatherImagesParams::kMaxChannels,
               "the description of the model is broken: ", d.num_classes, " classes, images of ", d.height, "x",
               d.width, "x", d.channels);
  HEDDLE_CHECK(d.image_size >= 0 && d.image_size <= 4096, "the description of the model is broken: an image size of ",
               d.image_size);
  return d;
}

}  // namespace heddle::tools
