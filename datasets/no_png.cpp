// Stands in for png.cpp in a build without libpng.
#include "datasets/image_file.h"
#include "engine/core/error.h"

namespace heddle::datasets {

bool png_supported() noexcept { return false; }

Image parse_png(std::span<const std::uint8_t>, const std::string& name, const ImageReadOptions&) {
  throw NotSupported(name + ": this build cannot read PNG; install libpng (libpng-dev) and configure again");
}

Image read_png(const std::string& path, const ImageReadOptions& options) { return parse_png({}, path, options); }

std::string encode_png(const Image&) {
  throw NotSupported("this build cannot write PNG; install libpng (libpng-dev) and configure again");
}

}  // namespace heddle::datasets
