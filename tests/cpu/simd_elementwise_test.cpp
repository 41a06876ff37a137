#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "engine/core/error.h"
#include "tests/cpu/simd_support.h"

namespace heddle::cpu::simd::test {
namespace {

// Distance in units in the last place of the result rounded to float; both zero, infinite of one sign or NaN: 0.
double ulp_error(float actual, double expected) {
  const auto rounded = static_cast<float>(expected);
  if (std::isnan(expected) || std::isinf(rounded)) {
    const bool equal = std::isnan(expected) ? std::isnan(actual) : actual == rounded;
    return equal ? 0.0 : std::numeric_limits<double>::infinity();
  }
  const float magnitude = std::max(std::fabs(rounded), std::numeric_limits<float>::min());
  const double ulp = std::nextafter(magnitude, kInfinity) - magnitude;
  return std::fabs(actual - expected) / ulp;
}

template <class Function>
double worst_ulp(void (*kernel)(const float*, float*, std::int64_t), const Floats& x, const Function& function) {
  Floats y = filled(x.size());
  kernel(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = ulp_error(y[i], function(static_cast<double>(x[i])));
    worst = std::isnan(error) ? kInfinity : std::max(worst, error);
  }
  return worst;
}

TEST_CASE("SIMD exp, log, tanh and sigmoid keep their promise of accuracy") {
  Random random;
  Floats x;
  for (const float range : {1e-6f, 0.1f, 1.0f, 10.0f, 90.0f, 110.0f}) {
    const Floats part = random.uniform(100003, -range, range);
    x.insert(x.end(), part.begin(), part.end());
  }
  for (const float special : {0.0f, -0.0f, kInfinity, -kInfinity, kNan, 1e-45f, -1e-40f, 88.722f, 88.73f, -87.4f,
                              -103.9f, -104.5f, 3e38f, -3e38f, 1.0f, 0.70710678f}) {
    x.push_back(special);
  }
  Floats positive = x;
  for (float& value : positive) value = std::exp(value);
  positive.insert(positive.end(), {0.0f, -0.0f, kInfinity, kNan, 1e-45f, 1e-40f, 3e38f, 1.0f, -1.0f, -kInfinity});
  for (const SimdKernels* k : available_tables()) {
    CAPTURE(k->isa);
    CHECK(worst_ulp(k->exp, x, [](double v) { return std::exp(v); }) <= 2.0);
    CHECK(worst_ulp(k->log, positive, [](double v) { return std::log(v); }) <= 2.0);
    CHECK(worst_ulp(k->tanh, x, [](double v) { return std::tanh(v); }) <= 4.0);
    CHECK(worst_ulp(k->sigmoid, x, [](double v) { return 1.0 / (1.0 + std::exp(-v)); }) <= 4.0);
  }
}

TEST_CASE("SIMD array functions match plain loops at every length") {
  Random random;
  for (const SimdKernels* k : available_tables()) {
    for (std::int64_t n = 0; n < 70; ++n) {
      CAPTURE(k->isa, n);
      Floats a = random.uniform(n);
      const Floats b = random.uniform(n);
      const auto size = static_cast<std::size_t>(n);
      if (n > 3) a[3] = kNan;
      std::vector<Floats> y(8, filled(n));
      k->relu_forward(a.data(), y[0].data(), n);
      k->relu_backward(a.data(), b.data(), y[1].data(), n);
      k->add(a.data(), b.data(), y[2].data(), n);
      k->multiply(a.data(), b.data(), y[3].data(), n);
      k->scale(a.data(), -2.5f, y[4].data(), n);
      k->fill(7.0f, y[5].data(), n);
      y[6] = b;
      k->axpy(0.5f, a.data(), y[6].data(), n);
      y[7] = a;
      k->add(y[7].data(), b.data(), y[7].data(), n);
      std::vector<Doubles> expected(8, Doubles(size));
      for (std::size_t i = 0; i < size; ++i) {
        expected[0][i] = std::isnan(a[i]) ? kNan : std::max(a[i], 0.0f);
        expected[1][i] = b[i] > 0 ? a[i] : 0.0f;
        expected[2][i] = a[i] + b[i];
        expected[3][i] = a[i] * b[i];
        expected[4][i] = a[i] * -2.5f;
        expected[5][i] = 7;
        expected[6][i] = b[i] + 0.5 * a[i];
        expected[7][i] = a[i] + b[i];
      }
      for (std::size_t f = 0; f < y.size(); ++f) CHECK(worst_error(y[f], expected[f]) < 1e-6);

      double sum = 0, squares = 0;
      for (const float value : b) {
        sum += value;
        squares += static_cast<double>(value) * value;
      }
      CHECK(k->sum(b.data(), n) == Approx(sum).margin(1e-12));
      CHECK(k->sum_of_squares(b.data(), n) == Approx(squares).margin(1e-12));
      Floats c = b;
      if (n > 40) c[40] = -kInfinity;
      if (n > 1) c[1] = kNan;
      CHECK(k->count_nonfinite(c.data(), n) == (n > 1 ? 1 : 0) + (n > 40 ? 1 : 0));
    }
  }
}

TEST_CASE("SIMD bytes to floats scales and shifts by channel") {
  for (const SimdKernels* k : available_tables()) {
    for (const std::int64_t channels : {1, 3, 4}) {
      std::vector<std::uint8_t> x;
      for (int i = 0; i < 256 * channels; ++i) x.push_back(static_cast<std::uint8_t>(i * 7));
      Random random;
      const Floats scale = random.uniform(channels), shift = random.uniform(channels);
      Floats y = filled(x.size());
      k->bytes_to_float(x.data(), scale.data(), shift.data(), channels, y.data(), static_cast<std::int64_t>(x.size()));
      Doubles expected(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t c = i % static_cast<std::size_t>(channels);
        expected[i] = static_cast<double>(x[i]) * scale[c] + shift[c];
      }
      CHECK(worst_error(y, expected) < 1e-6);
    }
  }
}

TEST_CASE("SIMD conversion to bfloat16 rounds to nearest even and keeps NaN") {
  const auto float_of = [](std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  };
  const std::uint32_t bits[] = {0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x80000000, 0x7f800000,
                                0xff800000, 0x7f7fffff, 0x7f800001, 0xffffffff, 0x00000001, 0x00008001};
  const std::uint16_t expected[] = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x8000, 0x7f80,
                                    0xff80, 0x7f80, 0x7fc0, 0xffff, 0x0000, 0x0001};
  for (const SimdKernels* k : available_tables()) {
    Floats x;
    std::vector<std::uint16_t> want;
    for (int repeat = 0; repeat < 5; ++repeat) {
      for (std::size_t i = 0; i < std::size(bits); ++i) {
        x.push_back(float_of(bits[i]));
        want.push_back(expected[i]);
      }
    }
    std::vector<std::uint16_t> y(x.size());
    k->to_bfloat16(x.data(), y.data(), static_cast<std::int64_t>(x.size()));
    CHECK(y == want);
    Floats back = filled(x.size());
    k->from_bfloat16(y.data(), back.data(), static_cast<std::int64_t>(x.size()));
    for (std::size_t i = 0; i < back.size(); ++i) {
      std::uint32_t got;
      std::memcpy(&got, &back[i], sizeof got);
      CHECK(got == static_cast<std::uint32_t>(y[i]) << 16);
    }
  }
}

TEST_CASE("SIMD averages move towards the weights by a share of the distance") {
  Random random;
  for (const SimdKernels* k : available_tables()) {
    const Floats x = random.uniform(37), y = random.uniform(37);
    Floats moved = y;
    Doubles expected(y.begin(), y.end());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += 0.25 * (double{x[i]} - expected[i]);
    k->move_towards(x.data(), 0.25f, moved.data(), 37);
    CHECK(worst_error(moved, expected) < 1e-6);
  }
}

TEST_CASE("SIMD optimiser steps follow PyTorch's formulas") {
  Random random;
  const std::int64_t n = 37;
  for (const SimdKernels* k : available_tables()) {
    for (const double momentum : {0.0, 0.9}) {
      for (const bool nesterov : {false, true}) {
        Floats w = random.uniform(n), buffer = filled(n, 0.0f);
        Doubles w64(w.begin(), w.end()), buffer64(w.size());
        for (int step = 0; step < 3; ++step) {
          const Floats g = random.uniform(n);
          const SgdStep args = {.w = w.data(),
                                .g = g.data(),
                                .momentum_buffer = momentum > 0 ? buffer.data() : nullptr,
                                .learning_rate = 0.1f,
                                .momentum = static_cast<float>(momentum),
                                .weight_decay = 0.01f,
                                .grad_scale = 0.5f,
                                .nesterov = nesterov};
          k->sgd_step(args, {0, 5});
          k->sgd_step(args, {5, n});
          for (std::size_t i = 0; i < w64.size(); ++i) {
            const double gradient = 0.5 * g[i] + 0.01 * w64[i];
            buffer64[i] = momentum * buffer64[i] + gradient;
            w64[i] -= 0.1 * (momentum > 0 && nesterov ? gradient + momentum * buffer64[i] : buffer64[i]);
          }
        }
        CHECK(worst_error(w, w64) < 1e-6);
      }
    }
    for (const bool decoupled : {false, true}) {
      Floats w = random.uniform(n), m = filled(n, 0.0f), v = filled(n, 0.0f);
      Doubles w64(w.begin(), w.end()), m64(w.size()), v64(w.size());
      for (int step = 1; step <= 3; ++step) {
        const Floats g = random.uniform(n);
        const double correction1 = 1 - std::pow(0.9, step), correction2 = 1 - std::pow(0.999, step);
        const AdamStep args = {.w = w.data(),
                               .g = g.data(),
                               .m = m.data(),
                               .v = v.data(),
                               .learning_rate = 0.01f,
                               .weight_decay = 0.1f,
                               .grad_scale = 0.5f,
                               .step_size = static_cast<float>(0.01 / correction1),
                               .inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(correction2)),
                               .decoupled_weight_decay = decoupled};
        k->adam_step(args, {0, 21});
        k->adam_step(args, {21, n});
        for (std::size_t i = 0; i < w64.size(); ++i) {
          const double gradient = 0.5 * g[i] + (decoupled ? 0.0 : 0.1 * w64[i]);
          if (decoupled) w64[i] *= 1 - 0.01 * 0.1;
          m64[i] = 0.9 * m64[i] + 0.1 * gradient;
          v64[i] = 0.999 * v64[i] + 0.001 * gradient * gradient;
          w64[i] -= 0.01 / correction1 * m64[i] / (std::sqrt(v64[i]) / std::sqrt(correction2) + 1e-8);
        }
      }
      CHECK(worst_error(w, w64) < 1e-5);
    }
  }
}

TEST_CASE("SIMD optimiser steps write no weight that is not finite, and count those they leave") {
  for (const SimdKernels* k : available_tables()) {
    const Floats before = filled(std::int64_t{37}, 1.0f);
    Floats g = filled(std::int64_t{37}, 1.0f);
    g[3] = std::numeric_limits<float>::infinity();
    g[20] = std::numeric_limits<float>::quiet_NaN();
    g[36] = 3e38f;
    for (const bool momentum : {false, true}) {
      Floats w = before, buffer = before;
      const SgdStep args = {.w = w.data(),
                            .g = g.data(),
                            .momentum_buffer = momentum ? buffer.data() : nullptr,
                            .learning_rate = 10.0f,
                            .momentum = momentum ? 0.5f : 0.0f};
      CHECK(k->sgd_step(args, {0, 37}) == 3);
      for (const std::size_t i : {3u, 20u, 36u}) CHECK((w[i] == 1.0f && buffer[i] == 1.0f));
      CHECK(w[0] == (momentum ? -14.0f : -9.0f));
    }
    Floats w = before, m = before, v = before;
    CHECK(k->adam_step({.w = w.data(), .g = g.data(), .m = m.data(), .v = v.data(), .step_size = 1.0f}, {0, 37}) == 3);
    for (const std::size_t i : {3u, 20u, 36u}) CHECK((w[i] == 1.0f && m[i] == 1.0f && v[i] == 1.0f));
    CHECK(w[0] != 1.0f);
  }
}

TEST_CASE("SIMD kernels are chosen by what the machine has") {
  CHECK(simd_kernels_for("baseline") != nullptr);
  CHECK(simd_kernels_for("sse9") == nullptr);
  const char* wanted = std::getenv("HEDDLE_SIMD");
  if (wanted != nullptr && simd_kernels_for(wanted) == nullptr) {
    CHECK_THROWS_AS(simd_kernels(), InvalidArgument);
    return;
  }
  CHECK(std::string(simd_kernels().isa) == (wanted != nullptr ? wanted : available_tables().front()->isa));
}

}  // namespace
}  // namespace heddle::cpu::simd::test
