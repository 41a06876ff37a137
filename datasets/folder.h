// A data set of one's own: PNG files in one folder per class.
#pragma once

#include <cstdint>
#include <string>

#include "datasets/image_dataset.h"

namespace heddle::datasets {

struct FolderOptions {
  // Every image is brought to so many rows and columns; 0: all must have one size.
  std::int64_t image_size = 0;
};

// Loads FOLDER/train/CLASS/*.png and FOLDER/test/CLASS/*.png. The sorted names (by bytes) of the folders in train are
// the classes 0, 1, ...; test must have the same ones, of which some may be empty. In a class the files come sorted by
// name. Hidden files and folders (".name") are passed over; links are followed; anything else that is no PNG file is an
// error, and so is a folder inside a class, so that nothing is left out without a word.
//
// All images are grey or all are RGB, of one size (unless they are resized) of at most 4096 pixels a side; alpha is
// laid over black, palettes are resolved, 16 bits are rounded to 8. `files` has one entry a part, whose checksum covers
// the names and contents of all its files.
//
// Throws: IoError with the path: missing, empty, unreadable or broken; two images that differ in size or channels (both
// paths); classes that differ; more than 256 classes; more pixels than 64 GiB. NotSupported without libpng.
ImageDatasetPair load_folder_dataset(const std::string& folder, const FolderOptions& options = {});

}  // namespace heddle::datasets
