#include "engine/core/random.h"

#include <cmath>
#include <numbers>

namespace heddle {

double Philox::normal() noexcept {
  // 1 - u is in (0,1], so the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(next_u32()) * 0x1p-32));
  return radius * std::cos(2.0 * std::numbers::pi * static_cast<double>(next_u32()) * 0x1p-32);
}

}  // namespace heddle
