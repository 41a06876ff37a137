// Loads the data set of a run and says which data it is, on the screen and in run.json.
#pragma once

#include <string>

#include "datasets/image_dataset.h"
#include "tools/console.h"
#include "tools/json.h"
#include "tools/settings.h"

namespace heddle::tools {

// Throws: IoError as the data set's loader.
datasets::ImageDatasetPair load_data(const Settings& settings);

// One line a file: path, items, CRC-32 of the content, and whether it is a file of Fashion-MNIST; a warning on err for
// files that pretend to be.
void print_data(const datasets::ImageDatasetPair& data, const Settings& settings, Console& out, Console& err);

// {"name", "recognised", "files": [{"path", "items", "crc32", "nbytes"}]}
Json data_to_json(const datasets::ImageDatasetPair& data);

// "b4f29f28"
std::string crc32_text(std::uint32_t crc32);

}  // namespace heddle::tools
