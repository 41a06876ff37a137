// A labelled set of images in host memory, as the data sets deliver it and the data loader takes it. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::datasets {

// Which file a part of a data set came from, for the first lines of a run and for run.json.
struct DatasetFile {
  std::string path;
  std::int64_t items = 0;
  std::uint32_t crc32 = 0;   // of the unpacked content
  std::uint64_t nbytes = 0;  // of the unpacked content
  bool gzip = false;
};

struct ImageDataset {
  std::vector<std::uint8_t> images;  // (count, height, width, channels), row-major
  std::vector<std::uint8_t> labels;  // (count), each below num_classes
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t num_classes = 0;
  std::vector<std::string> class_names;  // num_classes names
  std::vector<DatasetFile> files;        // images, labels; empty for a computed set
};

struct ImageDatasetPair {
  ImageDataset train;
  ImageDataset test;
  std::string name;         // "Fashion-MNIST", or "unknown" for other well-formed files
  bool recognised = false;  // all checksums are those of the published set
};

}  // namespace heddle::datasets
