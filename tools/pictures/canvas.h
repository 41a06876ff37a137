// A picture that is drawn into: rectangles, other pictures, and text in a small font of its own. Used by the pictures
// beside it; knows nothing of what they show.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "datasets/image_file.h"

namespace heddle::tools {

using Colour = std::array<std::uint8_t, 3>;  // red, green, blue

class Canvas {
 public:
  Canvas(std::int64_t height, std::int64_t width, const Colour& background);

  // What lies outside is left out, here and below.
  void fill(std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width, const Colour& colour);
  // Stretched or shrunk to a square of this side; grey images and those with alpha are drawn without the alpha.
  void draw(std::int64_t y, std::int64_t x, std::int64_t side, const datasets::Image& image);
  // Letters of 3x5 pixels, each `zoom` pixels wide. Small letters are drawn as large ones; what the font lacks, as a
  // blank.
  void write(std::int64_t y, std::int64_t x, std::string_view text, const Colour& colour, std::int64_t zoom = 2);

  static std::int64_t text_width(std::string_view text, std::int64_t zoom = 2);
  static constexpr std::int64_t text_height(std::int64_t zoom = 2) { return 5 * zoom; }
  const datasets::Image& image() const noexcept { return image_; }

 private:
  datasets::Image image_;
};

}  // namespace heddle::tools
