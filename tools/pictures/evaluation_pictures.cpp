#include "tools/pictures/evaluation_pictures.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tools/pictures/canvas.h"

namespace heddle::tools {
namespace {

constexpr Colour kPaper{255, 255, 255}, kInk{40, 40, 40}, kRight{0, 125, 60}, kWrong{200, 30, 30};
constexpr std::int64_t kGap = 6, kLine = Canvas::text_height() + 4;

// As many letters of the class's name as fit.
std::string short_name(const ModelDescription& description, std::int64_t label, std::int64_t width) {
  std::string name = description.class_name(label);
  while (!name.empty() && Canvas::text_width(name) > width) name.pop_back();
  return name;
}

// From white to a dark blue.
Colour shade(double share) {
  const auto mix = [share](double dark) { return static_cast<std::uint8_t>(std::lround(255 + share * (dark - 255))); };
  return {mix(8), mix(48), mix(107)};
}

}  // namespace

datasets::Image draw_mistakes(const std::vector<Mistake>& mistakes, const ModelDescription& description) {
  constexpr std::int64_t kSide = 88, kColumns = 6;
  const auto count = static_cast<std::int64_t>(mistakes.size());
  const std::int64_t columns = std::min(count, kColumns);
  const std::int64_t rows = (count + columns - 1) / columns;
  const std::int64_t cell_height = kSide + 2 * kLine + kGap;
  Canvas canvas(rows * cell_height + kGap, columns * (kSide + kGap) + kGap, kPaper);
  for (std::int64_t i = 0; i < count; ++i) {
    const Mistake& mistake = mistakes[static_cast<std::size_t>(i)];
    const std::int64_t y = kGap + i / columns * cell_height, x = kGap + i % columns * (kSide + kGap);
    canvas.draw(y, x, kSide, mistake.image);
    canvas.write(y + kSide + 4, x, short_name(description, mistake.label, kSide), kRight);
    canvas.write(y + kSide + 4 + kLine, x, short_name(description, mistake.prediction, kSide), kWrong);
  }
  return canvas.image();
}

datasets::Image draw_confusion(const data::ConfusionMatrix& confusion, const ModelDescription& description) {
  constexpr std::int64_t kMaxSide = 900, kUsualCell = 44, kNames = 104;
  const std::int64_t n = confusion.num_classes();
  const std::int64_t cell = std::clamp<std::int64_t>(kMaxSide / n, 1, kUsualCell);
  const bool named = cell >= kLine;
  const std::int64_t left = named ? kNames : kGap, top = named ? kLine + kGap : kGap;
  Canvas canvas(top + n * cell + kGap, left + n * cell + kGap, kPaper);
  for (std::int64_t label = 0; label < n; ++label) {
    const std::int64_t y = top + label * cell;
    const std::int64_t text_y = y + (cell - Canvas::text_height()) / 2;
    if (named) {
      canvas.write(text_y, kGap, short_name(description, label, kNames - 2 * kGap), kInk);
      const std::string number = std::to_string(label);
      canvas.write(kGap, left + label * cell + (cell - Canvas::text_width(number)) / 2, number, kInk);
    }
    for (std::int64_t prediction = 0; prediction < n; ++prediction) {
      const std::int64_t count = confusion.count(label, prediction), x = left + prediction * cell;
      const double share =
          count == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(confusion.label_count(label));
      canvas.fill(y, x, cell, cell, shade(share));
      const std::string text = std::to_string(count);
      const std::int64_t width = Canvas::text_width(text);
      if (count > 0 && named && width < cell) {
        canvas.write(text_y, x + (cell - width) / 2, text, share > 0.5 ? kPaper : kInk);
      }
    }
  }
  return canvas.image();
}

}  // namespace heddle::tools
