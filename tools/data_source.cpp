#include "tools/data_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "datasets/dataset_list.h"
#include "datasets/fashion_mnist.h"

namespace heddle::tools {
namespace {

std::vector<datasets::DatasetFile> files_of(const datasets::ImageDatasetPair& data) {
  std::vector<datasets::DatasetFile> files = data.train.files;
  files.insert(files.end(), data.test.files.begin(), data.test.files.end());
  return files;
}

bool is_fashion_mnist(const datasets::DatasetFile& file, std::size_t place) {
  const datasets::KnownFile& known = datasets::kFashionMnistFiles[place];
  return file.crc32 == known.crc32 && file.nbytes == known.nbytes;
}

}  // namespace

datasets::ImageDatasetPair load_data(const Settings& settings) {
  return datasets::load_dataset(settings.dataset, {.folder = settings.data_dir, .image_size = settings.image_size});
}

void print_data(const datasets::ImageDatasetPair& data, const Settings& settings, Console& out, Console& err) {
  const std::vector<datasets::DatasetFile> files = files_of(data);
  if (files.empty()) {
    out.line(fmt::format("data     {}, computed: {} training and {} test images", data.name, data.train.count,
                         data.test.count));
  }
  if (settings.dataset == "folder") {
    for (const datasets::DatasetFile& part : files) {
      out.line(fmt::format("data     {}: {} images, {}x{}x{} in {} classes, crc32 {}", part.path, part.items,
                           data.train.height, data.train.width, data.train.channels, data.train.num_classes,
                           crc32_text(part.crc32)));
    }
    return;
  }
  std::string strangers;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool known = i < datasets::kFashionMnistFiles.size() && is_fashion_mnist(files[i], i);
    out.line(fmt::format("data     {}: {} items, crc32 {}{}", files[i].path, files[i].items, crc32_text(files[i].crc32),
                         known ? ", Fashion-MNIST" : ", not a file of Fashion-MNIST"));
    if (!known) strangers += (strangers.empty() ? "" : ", ") + files[i].path;
  }
  if (!strangers.empty() && settings.dataset == "fashion-mnist") {
    err.line(fmt::format(
        "heddle: warning: this is not Fashion-MNIST, as its checksum shows: {}\n"
        "heddle: warning: for data of your own use --dataset idx; to check the files run heddle data verify",
        strangers));
  }
}

Json data_to_json(const datasets::ImageDatasetPair& data) {
  Json files = Json::array();
  for (const datasets::DatasetFile& file : files_of(data)) {
    files.push_back(
        {{"path", file.path}, {"items", file.items}, {"crc32", crc32_text(file.crc32)}, {"nbytes", file.nbytes}});
  }
  return {{"name", data.name}, {"recognised", data.recognised}, {"files", files}};
}

std::string crc32_text(std::uint32_t crc32) { return fmt::format("{:08x}", crc32); }

}  // namespace heddle::tools
