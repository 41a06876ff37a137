// What a checkpoint says about its model besides the weights, so that eval and predict need no further flags.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/image_dataset.h"
#include "engine/data/data_loader.h"
#include "engine/nn/module.h"
#include "tools/json.h"
#include "tools/settings.h"

namespace heddle::tools {

struct ModelDescription {
  std::string model;
  std::int64_t channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  // What the data set's images are before fit_images(): another size with --image-size, or one channel for a model of
  // three. All 0 if they are as the model takes them.
  std::int64_t source_channels = 0;
  std::int64_t source_height = 0;
  std::int64_t source_width = 0;
  std::int64_t num_classes = 10;
  std::vector<std::string> class_names;  // num_classes, or none
  std::string dataset;                   // name of the setting
  std::string data_dir;
  // y = (value / 255 - mean) / stddev, per channel.
  std::vector<float> mean;
  std::vector<float> stddev;
  // --image-size: images of a folder are brought to it as they are read, whatever size each has. 0: none was asked for.
  std::int64_t image_size = 0;

  // Loader options with this normalisation; everything else is the default.
  data::DataLoaderOptions loader_options() const;
  // The name of class i, or its number.
  std::string class_name(std::int64_t i) const;
};

// As the settings and the training images say. Throws: NotSupported for more channels than the loader takes.
ModelDescription describe_model(const Settings& settings, const datasets::ImageDataset& train);
// Brings both parts to the size that --image-size asks for, and to the channels that the model takes, and describes the
// model for them. Throws: as describe_model; UsageError if the images have other channels than the model takes.
ModelDescription prepare_data(const Settings& settings, datasets::ImageDatasetPair& data);
// The same for images of the data set that a model was trained on; those that are no such images are left alone.
void fit_images(datasets::ImageDataset& part, const ModelDescription& description);
// The model with parameters not drawn yet. Throws: InvalidArgument if it does not fit the images.
std::shared_ptr<nn::Module> make_model(const ModelDescription& description);

Json to_json(const ModelDescription& description);
// Throws: InvalidArgument if something is missing or of the wrong type.
ModelDescription model_description_from_json(const Json& json);

}  // namespace heddle::tools
