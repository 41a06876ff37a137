// Reads a picture for `heddle predict` and the folder data set, brings it to the size and channels of a model, and
// writes those that a training shows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "datasets/resize.h"

namespace heddle::datasets {

struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;         // 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha
  std::vector<std::uint8_t> pixels;  // (height, width, channels)
};

struct ImageReadOptions {
  std::int64_t max_pixels = std::int64_t{64} << 20;
};

// Whether this build can read and write PNG.
bool png_supported() noexcept;

// Reads a PNG of any kind: palettes are resolved, fewer bits than 8 are stretched, 16 bits are rounded to 8.
// Throws: IoError with the path and the reason for a broken, cut off or too large file; NotSupported without libpng.
Image read_png(const std::string& path, const ImageReadOptions& options = {});
// The same from memory; `name` stands for the path.
Image parse_png(std::span<const std::uint8_t> bytes, const std::string& name, const ImageReadOptions& options = {});

// The image as a PNG file, 8 bits a channel, without a time or a text, so that equal images give equal bytes. Throws:
// InvalidArgument unless the image has 1 to 4 channels and as many pixels as it says; NotSupported without libpng.
std::string encode_png(const Image& image);

// One channel, from RGB by the luma weights of ITU-R BT.601 (0.299, 0.587, 0.114). Alpha is laid over black.
Image to_grey(const Image& image);

// Three channels: grey three times. Alpha is laid over black.
Image to_rgb(const Image& image);

// As Resizer does. Throws: InvalidArgument unless both sizes are positive and the image is not empty.
Image resize(const Image& image, std::int64_t height, std::int64_t width, Shrink shrink = Shrink::area);

}  // namespace heddle::datasets
