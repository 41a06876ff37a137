#include "models/model_list.h"

#include <algorithm>

#include "engine/core/text.h"
#include "models/lenet.h"

namespace heddle::models {

const std::vector<ModelInfo>& model_list() {
  static const std::vector<ModelInfo> list{
      {"lenet", "LeNet-5 with ReLU and max pooling: 6 and 16 channels, 44,426 parameters", make_lenet},
      {"lenet-d2l", "wider LeNet with average pooling: 20 and 50 channels, 129,068 parameters", make_lenet_d2l},
  };
  return list;
}

std::shared_ptr<nn::Module> make_model(std::string_view name, const ModelOptions& options) {
  HEDDLE_CHECK(options.in_channels >= 1 && options.height >= 1 && options.width >= 1 && options.num_classes >= 1,
               "model ", name, ": images of (", options.height, ",", options.width, ",", options.in_channels, ") in ",
               options.num_classes, " classes");
  const auto& list = model_list();
  const auto found = std::find_if(list.begin(), list.end(), [&](const ModelInfo& info) { return info.name == name; });
  if (found == list.end()) {
    std::vector<std::string> names;
    for (const ModelInfo& info : list) names.emplace_back(info.name);
    throw InvalidArgument(unknown_name_message("model", name, names));
  }
  return found->make(options);
}

}  // namespace heddle::models
