// Pictures for `heddle predict`: reads PNG and IDX files and makes of each what the model was trained on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/image_file.h"

namespace heddle::tools {

enum class Invert { automatic, on, off };

// Images [begin, end) of an IDX file.
struct ImageRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct ImageInputOptions {
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t channels = 1;
  // Images of this size are resized as those of the training were. 0: there is no such size.
  std::int64_t source_height = 0;
  std::int64_t source_width = 0;
  Invert invert = Invert::automatic;
  std::optional<ImageRange> range;
};

struct InputImage {
  std::string name;                  // path, and the number in an IDX file
  std::vector<std::uint8_t> pixels;  // (height, width, channels)
};

struct ImageInput {
  std::vector<InputImage> images;
  std::vector<std::string> notices;  // what was changed, one line each
};

// "5" or "5:8" (5, 6, 7). Throws: UsageError.
ImageRange parse_range(std::string_view text);

// All images of a file, which is PNG or IDX by its content. Pictures are made grey (or coloured), resized, and inverted
// (a bright border means a bright background, but the models know a dark one) as needed. Without a range an IDX file
// gives its first ten. Throws: IoError; UsageError if the range is not in the file; NotSupported without libpng.
ImageInput read_images(const std::string& path, const ImageInputOptions& options);

}  // namespace heddle::tools
