#include "tools/spread.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/core/error.h"

namespace heddle::tools {

Spread spread_of(const std::vector<double>& values) {
  HEDDLE_CHECK(!values.empty(), "spread_of: no numbers");
  const auto n = static_cast<double>(values.size());
  Spread spread;
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0.0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = values.size() > 1 ? std::sqrt(squares / (n - 1)) : 0.0;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  spread.min = *low;
  spread.max = *high;
  return spread;
}

}  // namespace heddle::tools
