// The data sets that the program knows by name. A new data set is a row in dataset_list.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/image_dataset.h"

namespace heddle::datasets {

struct DatasetOptions {
  std::string folder;           // where the files are; empty: the data set's own places
  std::int64_t image_size = 0;  // for sets whose images may differ in size: rows and columns of all
};

struct DatasetInfo {
  const char* name;
  const char* summary;  // one line for --help
  ImageDatasetPair (*load)(const DatasetOptions& options);
};

const std::vector<DatasetInfo>& dataset_list();
// Training and test part in memory. Throws: InvalidArgument for an unknown name, with those known; what the row's
// loader throws.
ImageDatasetPair load_dataset(std::string_view name, const DatasetOptions& options);

}  // namespace heddle::datasets
