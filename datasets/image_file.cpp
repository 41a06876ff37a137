#include "datasets/image_file.h"

#include "engine/core/error.h"

namespace heddle::datasets {
Image to_grey(const Image& image) {
  if (image.channels == 1) return image;
  HEDDLE_CHECK(image.channels >= 2 && image.channels <= 4, "to_grey: the image has ", image.channels,
               " channels, expected 1 to 4");
  Image grey{image.height, image.width, 1, {}};
  grey.pixels.resize(static_cast<std::size_t>(image.height * image.width));
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
    const std::uint8_t* p = image.pixels.data() + i * channels;
    // Thousandths, rounded to nearest.
    std::uint32_t luma = channels >= 3 ? 299u * p[0] + 587u * p[1] + 114u * p[2] : 1000u * p[0];
    if (channels == 2 || channels == 4) luma = (luma * p[channels - 1] + 127) / 255;
    grey.pixels[i] = static_cast<std::uint8_t>((luma + 500) / 1000);
  }
  return grey;
}

Image to_rgb(const Image& image) {
  if (image.channels == 3) return image;
  HEDDLE_CHECK(image.channels >= 1 && image.channels <= 4, "to_rgb: the image has ", image.channels,
               " channels, expected 1 to 4");
  Image rgb{image.height, image.width, 3, {}};
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = 0; i < image.pixels.size(); i += channels) {
    const std::uint8_t* p = image.pixels.data() + i;
    const std::uint32_t alpha = channels % 2 == 0 ? p[channels - 1] : 255;
    for (std::size_t c = 0; c < 3; ++c) {
      rgb.pixels.push_back(static_cast<std::uint8_t>((p[channels >= 3 ? c : 0] * alpha + 127) / 255));
    }
  }
  return rgb;
}

Image resize(const Image& image, std::int64_t height, std::int64_t width, Shrink shrink) {
  const Resizer resizer({image.height, image.width}, {height, width}, image.channels, shrink);
  if (image.height == height && image.width == width) return image;
  Image out{height, width, image.channels, {}};
  out.pixels.resize(static_cast<std::size_t>(height * width * image.channels));
  resizer.run(image.pixels.data(), out.pixels.data());
  return out;
}

}  // namespace heddle::datasets
