// Curves as inline SVG. Used by the page of a report; knows nothing of runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::tools::report {

struct Series {
  std::string name;
  int colour = 0;  // a number of the palette, which goes round
  bool dashed = false;
  std::vector<std::int64_t> x;
  std::vector<double> y;  // as many; NaN: no point there
};

struct ChartSpec {
  std::string title;
  std::string unit;  // of y, behind the numbers: "%", ""
  std::vector<Series> series;
  bool from_zero = false;  // y begins at 0
};

// A figure with axes, curves and a legend. Texts are escaped. Without a finite point it says so instead.
std::string svg_chart(const ChartSpec& spec);

// "#1f77b4"
std::string palette_colour(int number);

}  // namespace heddle::tools::report
