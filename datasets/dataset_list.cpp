#include "datasets/dataset_list.h"

#include "datasets/fashion_mnist.h"
#include "datasets/folder.h"
#include "datasets/synthetic.h"
#include "engine/core/error.h"

namespace heddle::datasets {

const std::vector<DatasetInfo>& dataset_list() {
  static const std::vector<DatasetInfo> list = {
      {"fashion-mnist", "70,000 grey pictures of clothes, 28x28, ten classes",
       [](const DatasetOptions& options) { return load_fashion_mnist(options.folder); }},
      {"synthetic", "7,000 computed pictures, 28x28, ten classes; needs no files",
       [](const DatasetOptions&) { return make_synthetic(); }},
      {"idx", "your own images in four IDX files named like those of Fashion-MNIST",
       [](const DatasetOptions& options) { return load_idx_dataset(options.folder); }},
      {"folder", "your own PNG images, in a folder for each class below train/ and test/",
       [](const DatasetOptions& options) {
         return load_folder_dataset(options.folder, {.image_size = options.image_size});
       }},
  };
  return list;
}

ImageDatasetPair load_dataset(std::string_view name, const DatasetOptions& options) {
  std::string known;
  for (const DatasetInfo& info : dataset_list()) {
    if (name == info.name) return info.load(options);
    known += known.empty() ? info.name : std::string(", ") + info.name;
  }
  throw InvalidArgument("unknown data set '" + std::string(name) + "'; known: " + known);
}

}  // namespace heddle::datasets
