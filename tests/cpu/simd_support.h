// What the tests of the hand-written CPU kernels share: random arrays, the tables to test, comparison with doubles.
// Arrays have exactly the size that a kernel may touch, so that a run under AddressSanitizer finds any excess.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/simd/simd_kernels.h"
#include "tests/support/catch.h"

namespace heddle::cpu::simd::test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::vector<const SimdKernels*> available_tables() {
  std::vector<const SimdKernels*> tables;
  for (const char* isa : {"avx512", "avx2", "baseline"}) {
    if (const SimdKernels* table = simd_kernels_for(isa)) tables.push_back(table);
  }
  return tables;
}

class Random {
 public:
  Floats uniform(std::int64_t n, float low = -1.0f, float high = 1.0f) {
    std::uniform_real_distribution<float> distribution(low, high);
    Floats values(static_cast<std::size_t>(n));
    for (float& value : values) value = distribution(engine_);
    return values;
  }
  std::int64_t below(std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n - 1)(engine_); }

 private:
  std::mt19937 engine_{7};
};

inline Floats filled(std::int64_t n, float value = kNan) { return Floats(static_cast<std::size_t>(n), value); }
inline Floats filled(std::size_t n, float value = kNan) { return Floats(n, value); }

// Largest |actual - expected| / (1 + |expected|); infinity if any value is NaN where the other is not.
inline double worst_error(const Floats& actual, const Doubles& expected) {
  double worst = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(actual[i])) continue;
    const double error = std::fabs(actual[i] - expected[i]) / (1.0 + std::fabs(expected[i]));
    if (!(error <= worst)) worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return worst;
}

inline Doubles plus(const Doubles& a, const Floats& b) {
  Doubles sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += b[i];
  return sum;
}

}  // namespace heddle::cpu::simd::test
