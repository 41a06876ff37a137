#include "tools/report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/report/html.h"

namespace heddle::tools::report {
namespace {

constexpr std::array kPalette = {"#1f6fb4", "#d95f02", "#1b8a5a", "#c0277f", "#7259b5",
                                 "#8c6d1f", "#3aa6b9", "#c23b3b", "#5c6b73", "#94a81e"};

constexpr double kWidth = 560, kHeight = 300, kLeft = 62, kRight = 14, kTop = 14, kBottom = 40;
constexpr std::size_t kMaxMarks = 60;  // more points run into each other

struct Range {
  double low = 0.0, high = 1.0;
};

// Numbers that no training gives would leave no room for the others.
bool is_shown(double y) { return std::abs(y) < 1e30; }

// 1, 2 or 5 times a power of ten: about `count` of them fill the range.
double tick_distance(const Range& range, double count) {
  const double raw = (range.high - range.low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double leading = raw / power;
  return power * (leading <= 1 ? 1 : leading <= 2 ? 2 : leading <= 5 ? 5 : 10);
}

class Chart {
 public:
  explicit Chart(const ChartSpec& spec) : spec_(spec) { find_ranges(); }

  bool empty() const { return points_ == 0; }

  std::string svg() const {
    std::string text = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, kHeight,
                                   escape(spec_.title));
    draw_axes(text);
    for (const Series& series : spec_.series) draw(series, text);
    return text + "</svg>\n";
  }

 private:
  void find_ranges() {
    const auto widen = [](Range& range, double value, bool first) {
      range.low = first ? value : std::min(range.low, value);
      range.high = first ? value : std::max(range.high, value);
    };
    for (const Series& series : spec_.series) {
      for (std::size_t i = 0; i < series.x.size(); ++i) {
        if (!is_shown(series.y[i])) continue;
        widen(x_, static_cast<double>(series.x[i]), points_ == 0);
        widen(y_, series.y[i], points_ == 0);
        ++points_;
      }
    }
    if (x_.high - x_.low < 1) x_ = {x_.low - 0.5, x_.low + 0.5};
    if (spec_.from_zero) y_.low = std::min(y_.low, 0.0);
    // Differences below rounding are none.
    const double size = std::max(std::abs(y_.low), std::abs(y_.high));
    if (y_.high - y_.low <= size * 1e-9)
      y_ = {y_.low - (size > 0 ? size * 0.1 : 0.5), y_.high + (size > 0 ? size * 0.1 : 0.5)};
    const double margin = (y_.high - y_.low) * 0.05;
    y_.high += margin;
    if (!spec_.from_zero || y_.low < 0) y_.low -= margin;
  }

  double place_x(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  double place_y(double y) const {
    return kHeight - kBottom - (y - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

  void draw_axes(std::string& text) const {
    const double right = kWidth - kRight, bottom = kHeight - kBottom;
    const double dy = tick_distance(y_, 5);
    for (double i = std::ceil(y_.low / dy); i * dy <= y_.high; ++i) {
      const double y = place_y(i * dy);
      text +=
          fmt::format("<line class=\"grid\" x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\"/>", kLeft, y, right);
      // i may be -0.
      text += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}{}</text>\n", kLeft - 6, y + 4,
                          i * dy + 0.0, escape(spec_.unit));
    }
    const double dx = std::max(tick_distance(x_, 8), 1.0);
    for (double i = std::ceil(x_.low / dx); i * dx <= x_.high; ++i) {
      text += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n", place_x(i * dx),
                          bottom + 16, i * dx);
    }
    text +=
        fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">epoch</text>\n", (kLeft + right) / 2, kHeight - 6);
    text += fmt::format("<path class=\"axis\" d=\"M{0} {1}V{2}H{3}\"/>\n", kLeft, kTop, bottom, right);
  }

  void draw(const Series& series, std::string& text) const {
    const std::string colour = palette_colour(series.colour);
    std::string path;
    bool gap = true;
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!is_shown(series.y[i])) {
        // An epoch without a value, such as one without evaluation, is passed over; a value without place is a gap.
        gap = gap || !std::isnan(series.y[i]);
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}", gap ? "M" : "L", place_x(static_cast<double>(series.x[i])),
                          place_y(series.y[i]));
      gap = false;
    }
    text += fmt::format("<path class=\"curve\" stroke=\"{}\"{} d=\"{}\"/>\n", colour,
                        series.dashed ? " stroke-dasharray=\"5 4\"" : "", path);
    if (series.x.size() > kMaxMarks) return;
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!is_shown(series.y[i])) continue;
      text += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}, epoch {}: {:.5g}{}</title>"
          "</circle>\n",
          place_x(static_cast<double>(series.x[i])), place_y(series.y[i]), colour, escape(series.name), series.x[i],
          series.y[i], escape(spec_.unit));
    }
  }

  const ChartSpec& spec_;
  Range x_, y_;
  std::size_t points_ = 0;
};

}  // namespace

std::string palette_colour(int number) { return kPalette[static_cast<std::size_t>(number) % kPalette.size()]; }

std::string svg_chart(const ChartSpec& spec) {
  std::string html = "<figure class=\"chart\"><figcaption>" + escape(spec.title) + "</figcaption>\n";
  const Chart chart(spec);
  if (chart.empty()) return html + "<p>No epoch was recorded.</p></figure>\n";
  html += chart.svg();
  if (spec.series.size() == 1) return html + "</figure>\n";
  html += "<p class=\"legend\">";
  for (const Series& series : spec.series) {
    html += fmt::format(
        "<span><svg viewBox=\"0 0 24 8\"><path class=\"curve\" stroke=\"{}\"{} d=\"M0 4H24\"/></svg>{}"
        "</span> ",
        palette_colour(series.colour), series.dashed ? " stroke-dasharray=\"5 4\"" : "", escape(series.name));
  }
  return html + "</p></figure>\n";
}

}  // namespace heddle::tools::report
