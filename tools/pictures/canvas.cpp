#include "tools/pictures/canvas.h"

#include <algorithm>
#include <cctype>

namespace heddle::tools {
namespace {

// Five rows of three pixels, from the top; in each the left one is worth 4.
struct Glyph {
  char letter;
  std::array<std::uint8_t, 5> rows;
};

constexpr Glyph kFont[] = {
    {'A', {2, 5, 7, 5, 5}}, {'B', {6, 5, 6, 5, 6}}, {'C', {3, 4, 4, 4, 3}}, {'D', {6, 5, 5, 5, 6}},
    {'E', {7, 4, 6, 4, 7}}, {'F', {7, 4, 6, 4, 4}}, {'G', {3, 4, 5, 5, 3}}, {'H', {5, 5, 7, 5, 5}},
    {'I', {7, 2, 2, 2, 7}}, {'J', {1, 1, 1, 5, 2}}, {'K', {5, 5, 6, 5, 5}}, {'L', {4, 4, 4, 4, 7}},
    {'M', {5, 7, 7, 5, 5}}, {'N', {6, 5, 5, 5, 5}}, {'O', {2, 5, 5, 5, 2}}, {'P', {6, 5, 6, 4, 4}},
    {'Q', {2, 5, 5, 6, 3}}, {'R', {6, 5, 6, 5, 5}}, {'S', {3, 4, 2, 1, 6}}, {'T', {7, 2, 2, 2, 2}},
    {'U', {5, 5, 5, 5, 7}}, {'V', {5, 5, 5, 5, 2}}, {'W', {5, 5, 7, 7, 5}}, {'X', {5, 5, 2, 5, 5}},
    {'Y', {5, 5, 2, 2, 2}}, {'Z', {7, 1, 2, 4, 7}}, {'0', {7, 5, 5, 5, 7}}, {'1', {2, 6, 2, 2, 7}},
    {'2', {6, 1, 2, 4, 7}}, {'3', {6, 1, 2, 1, 6}}, {'4', {5, 5, 7, 1, 1}}, {'5', {7, 4, 6, 1, 6}},
    {'6', {3, 4, 7, 5, 7}}, {'7', {7, 1, 2, 2, 2}}, {'8', {7, 5, 7, 5, 7}}, {'9', {7, 5, 7, 1, 6}},
    {'-', {0, 0, 7, 0, 0}}, {'/', {1, 1, 2, 4, 4}}, {'.', {0, 0, 0, 0, 2}}, {'_', {0, 0, 0, 0, 7}},
    {':', {0, 2, 0, 2, 0}}, {'(', {1, 2, 2, 2, 1}}, {')', {4, 2, 2, 2, 4}}, {'%', {5, 1, 2, 4, 5}},
};

constexpr std::int64_t kGlyphWidth = 3, kAdvance = 4;

const Glyph* find_glyph(char letter) {
  const char large = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  const auto* const found =
      std::find_if(std::begin(kFont), std::end(kFont), [large](const Glyph& glyph) { return glyph.letter == large; });
  return found == std::end(kFont) ? nullptr : found;
}

}  // namespace

Canvas::Canvas(std::int64_t height, std::int64_t width, const Colour& background)
    : image_{height, width, 3, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * 3))} {
  fill(0, 0, height, width, background);
}

void Canvas::fill(std::int64_t y, std::int64_t x, std::int64_t height, std::int64_t width, const Colour& colour) {
  for (std::int64_t row = std::max<std::int64_t>(y, 0); row < std::min(y + height, image_.height); ++row) {
    for (std::int64_t column = std::max<std::int64_t>(x, 0); column < std::min(x + width, image_.width); ++column) {
      std::copy(colour.begin(), colour.end(), image_.pixels.begin() + (row * image_.width + column) * 3);
    }
  }
}

void Canvas::draw(std::int64_t y, std::int64_t x, std::int64_t side, const datasets::Image& image) {
  // Small images keep their pixels visible.
  const bool shrinks = image.height > side || image.width > side;
  const datasets::Image fitted = shrinks ? datasets::resize(image, side, side) : image;
  const std::int64_t colours = fitted.channels < 3 ? 1 : 3;
  for (std::int64_t row = 0; row < side; ++row) {
    for (std::int64_t column = 0; column < side; ++column) {
      const std::int64_t from =
          ((row * fitted.height / side) * fitted.width + column * fitted.width / side) * fitted.channels;
      Colour colour{};
      for (std::int64_t i = 0; i < 3; ++i) {
        colour[static_cast<std::size_t>(i)] = fitted.pixels[static_cast<std::size_t>(from + i % colours)];
      }
      fill(y + row, x + column, 1, 1, colour);
    }
  }
}

void Canvas::write(std::int64_t y, std::int64_t x, std::string_view text, const Colour& colour, std::int64_t zoom) {
  for (const char letter : text) {
    if (const Glyph* const glyph = find_glyph(letter)) {
      for (std::int64_t i = 0; i < 5 * kGlyphWidth; ++i) {
        const std::int64_t row = i / kGlyphWidth, column = i % kGlyphWidth;
        const unsigned bits = glyph->rows[static_cast<std::size_t>(row)];
        if ((bits >> (kGlyphWidth - 1 - column) & 1U) != 0) {
          fill(y + row * zoom, x + column * zoom, zoom, zoom, colour);
        }
      }
    }
    x += kAdvance * zoom;
  }
}

std::int64_t Canvas::text_width(std::string_view text, std::int64_t zoom) {
  return text.empty() ? 0 : (static_cast<std::int64_t>(text.size()) * kAdvance - 1) * zoom;
}

}  // namespace heddle::tools
