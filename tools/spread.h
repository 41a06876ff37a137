// Mean and spread of a few numbers, as of runs with several seeds.
#pragma once

#include <vector>

namespace heddle::tools {

struct Spread {
  double mean = 0.0;
  double deviation = 0.0;  // sqrt(sum((x - mean)^2) / (n - 1)); 0 for one number
  double min = 0.0;
  double max = 0.0;
};

// Throws: InvalidArgument without a number.
Spread spread_of(const std::vector<double>& values);

}  // namespace heddle::tools
