#include <algorithm>

#include "tests/cpu/simd_support.h"

namespace heddle::cpu::simd::test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void check_linear(const SimdKernels& k, const LinearShape& s) {
  CAPTURE(k.isa, s.rows, s.in, s.out);
  Random random;
  const Floats x = random.uniform(s.rows * s.in), w = random.uniform(s.out * s.in), b = random.uniform(s.out);
  const Floats dy = random.uniform(s.rows * s.out), mask = random.uniform(s.rows * s.in);
  Doubles y(dy.size()), dx(x.size()), dw(w.size()), db(b.size());
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t o = 0; o < s.out; ++o) {
      double sum = b[at(o)];
      const double gradient = dy[at(row * s.out + o)];
      for (std::int64_t i = 0; i < s.in; ++i) {
        sum += static_cast<double>(x[at(row * s.in + i)]) * w[at(o * s.in + i)];
        dx[at(row * s.in + i)] += gradient * w[at(o * s.in + i)];
        dw[at(o * s.in + i)] += gradient * x[at(row * s.in + i)];
      }
      y[at(row * s.out + o)] = sum;
      db[at(o)] += gradient;
    }
  }
  for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = mask[i] > 0 ? dx[i] : 0.0;
  const double tolerance = 1e-4;
  Floats scratch = filled(k.linear_scratch_floats(s));
  const Range rows[] = {{0, s.rows / 2}, {s.rows / 2, s.rows}};
  const Range columns[] = {{0, s.in / 3}, {s.in / 3, s.in}};
  for (const bool relu : {false, true}) {
    Floats result = filled(y.size());
    for (const Range& range : rows) {
      k.linear_forward(
          s,
          {.x = x.data(), .w = w.data(), .bias = b.data(), .relu = relu, .y = result.data(), .scratch = scratch.data()},
          range);
    }
    Doubles expected = y;
    for (double& value : expected) value = relu ? std::max(value, 0.0) : value;
    CHECK(worst_error(result, expected) < tolerance);
  }
  for (const bool accumulate : {false, true}) {
    Floats result_dx = accumulate ? random.uniform(s.rows * s.in) : filled(x.size());
    Floats result_dw = accumulate ? random.uniform(s.out * s.in) : filled(w.size());
    Floats result_db = accumulate ? random.uniform(s.out) : filled(b.size());
    const Doubles expected_dx = accumulate ? plus(dx, result_dx) : dx;
    const Doubles expected_dw = accumulate ? plus(dw, result_dw) : dw;
    const Doubles expected_db = accumulate ? plus(db, result_db) : db;
    for (const Range& range : rows) {
      k.linear_backward_data(s,
                             {.dy = dy.data(),
                              .w = w.data(),
                              .relu_mask = mask.data(),
                              .accumulate = accumulate,
                              .dx = result_dx.data(),
                              .scratch = scratch.data()},
                             range);
    }
    for (const Range& range : columns) {
      k.linear_backward_weight(
          s,
          {.x = x.data(), .dy = dy.data(), .dw = result_dw.data(), .accumulate = accumulate, .scratch = scratch.data()},
          range);
    }
    Floats sums = filled(k.column_sums_floats(s.out));
    k.column_sums(dy.data(), s.rows, s.out, accumulate, result_db.data(), sums.data());
    CHECK(worst_error(result_dx, expected_dx) < tolerance);
    CHECK(worst_error(result_dw, expected_dw) < tolerance);
    CHECK(worst_error(result_db, expected_db) < tolerance);
  }
}

TEST_CASE("SIMD linear layers and their gradients match double loops") {
  for (const SimdKernels* k : available_tables()) {
    for (const std::int64_t rows : {1, 2, 7, 64}) {
      for (const std::int64_t in : {1, 16, 50, 84, 256}) {
        for (const std::int64_t out : {1, 10, 33, 120}) check_linear(*k, {rows, in, out});
      }
    }
  }
}

}  // namespace
}  // namespace heddle::cpu::simd::test
