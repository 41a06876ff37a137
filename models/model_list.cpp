#include "models/model_list.h"

#include <algorithm>

#include "engine/core/text.h"
#include "models/lenet.h"
#include "models/resnet.h"

namespace heddle::models {

const std::vector<ModelInfo>& model_list() {
  static const std::vector<ModelInfo> list{
      {"lenet", "LeNet-5 with ReLU and max pooling: 6 and 16 channels, 44,426 parameters", make_lenet},
      {"lenet-d2l", "wider LeNet with average pooling: 20 and 50 channels, 129,068 parameters", make_lenet_d2l},
      {"resnet18", "ResNet-18 with a stem of 7x7 and a pooling: 11,178,378 parameters", make_resnet18},
      {"resnet18-cifar", "ResNet-18 with a stem of 3x3 for small images: 11,175,818 parameters", make_resnet18_cifar},
      {"resnet18-tv", "torchvision's ResNet-18 for three channels: 11,181,642 parameters", make_resnet18_tv, 3},
  };
  return list;
}

const ModelInfo& find_model(std::string_view name) {
  const auto& list = model_list();
  const auto found = std::find_if(list.begin(), list.end(), [&](const ModelInfo& info) { return info.name == name; });
  if (found == list.end()) {
    std::vector<std::string> names;
    for (const ModelInfo& info : list) names.emplace_back(info.name);
    throw InvalidArgument(unknown_name_message("model", name, names));
  }
  return *found;
}

std::shared_ptr<nn::Module> make_model(std::string_view name, const ModelOptions& options) {
  HEDDLE_CHECK(options.in_channels >= 1 && options.height >= 1 && options.width >= 1 && options.num_classes >= 1,
               "model ", name, ": images of (", options.height, ",", options.width, ",", options.in_channels, ") in ",
               options.num_classes, " classes");
  return find_model(name).make(options);
}

}  // namespace heddle::models
