#include "datasets/alpha.h"

#include <utility>

#include "engine/core/error.h"

namespace heddle::datasets {

Image without_alpha(Image image) {
  HEDDLE_CHECK(image.channels >= 1 && image.channels <= 4, "without_alpha: the image has ", image.channels,
               " channels, expected 1 to 4");
  if (image.channels % 2 == 1) return image;
  const auto from = static_cast<std::size_t>(image.channels), to = from - 1;
  const auto pixels = static_cast<std::size_t>(image.height * image.width);
  // In place: what is read lies never before what is written.
  for (std::size_t i = 0; i < pixels; ++i) {
    const std::uint32_t alpha = image.pixels[i * from + to];
    for (std::size_t c = 0; c < to; ++c) {
      image.pixels[i * to + c] = static_cast<std::uint8_t>((image.pixels[i * from + c] * alpha + 127) / 255);
    }
  }
  image.channels -= 1;
  image.pixels.resize(pixels * to);
  return image;
}

}  // namespace heddle::datasets
