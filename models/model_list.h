// The models that the program knows by name. A new model is a row in model_list.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/module.h"

namespace heddle::models {

struct ModelOptions {
  std::int64_t in_channels = 1;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t num_classes = 10;
};

struct ModelInfo {
  const char* name;
  const char* summary;  // one line for --help
  std::shared_ptr<nn::Module> (*make)(const ModelOptions& options);
  std::int64_t in_channels = 0;  // the only number of channels it takes; 0: any
};

const std::vector<ModelInfo>& model_list();
// The row of that name. Throws: InvalidArgument with the nearest known name.
const ModelInfo& find_model(std::string_view name);
// Parameters are not drawn yet: call reset_parameters(). Throws: InvalidArgument with the nearest known name, or when
// the image size does not fit the model.
std::shared_ptr<nn::Module> make_model(std::string_view name, const ModelOptions& options);

}  // namespace heddle::models
