// How far two lists of weights are apart.
#pragma once

#include <cmath>
#include <vector>

namespace heddle::testing {

// Norm of a - b over the norm of b, both of the same length.
inline double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace heddle::testing
