// Element types and the product kernel of the simulated libraries.
#include "tests/cudasim/numbers.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/cudasim/dense_math.h"
#include "tests/support/catch.h"

using namespace cudasim;

TEST_CASE("bfloat16 rounds to nearest, ties to even") {
  // 8 significant bits: between 1 and 2 the step is 1/128.
  CHECK(round_to(ElementType::bfloat16, 1 + 1.0 / 256) == 1.0);
  CHECK(round_to(ElementType::bfloat16, 1 + 3.0 / 256) == 1 + 1.0 / 64);
  CHECK(round_to(ElementType::bfloat16, 1 + 1.0 / 256 + 1e-6) == 1 + 1.0 / 128);
  CHECK(round_to(ElementType::bfloat16, -(1 + 3.0 / 256)) == -(1 + 1.0 / 64));
  CHECK(std::isinf(round_to(ElementType::bfloat16, 3.4e38)));
  CHECK(std::isnan(round_to(ElementType::bfloat16, std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("half and TF32 have 10 fraction bits") {
  CHECK(round_to(ElementType::float16, 1 + 1.0 / 2048) == 1.0);
  CHECK(round_to(ElementType::float16, 1 + 3.0 / 2048) == 1 + 1.0 / 512);
  CHECK(std::isinf(round_to(ElementType::float16, 70000)));
  CHECK(round_to_tf32(1 + 1.0 / 2048) == 1 + 1.0 / 1024);
  CHECK(round_to_tf32(1 + 0.9 / 2048) == 1.0);
  CHECK(round_to_tf32(70000) == 70016.0);
}

TEST_CASE("integers saturate and booleans are bits") {
  CHECK(round_to(ElementType::int8, 200) == 127);
  CHECK(round_to(ElementType::int8, -2.5) == -2);
  CHECK(round_to(ElementType::uint8, -1) == 0);
  CHECK(bytes_of(ElementType::boolean, 9) == 2);
  std::uint8_t bytes[2] = {0xff, 0xff};
  const double values[3] = {0, 1, 0};
  write_elements(bytes, {.type = ElementType::boolean, .first = 3, .stride = 2, .n = 3}, values);
  CHECK(bytes[0] == 0x77);
  double back[3];
  read_elements(bytes, {.type = ElementType::boolean, .first = 3, .stride = 2, .n = 3}, back);
  CHECK(back[0] == 0);
  CHECK(back[1] == 1);
  CHECK(back[2] == 0);
}

TEST_CASE("the product kernel adds a times b, for every size of its blocks") {
  for (std::int64_t m : {1, 3, 4, 9}) {
    for (std::int64_t n = 1; n <= 13; ++n) {
      const std::int64_t k = 5;
      std::vector<double> a, b, c(static_cast<std::size_t>(m * n), 0.5), expected = c;
      for (std::int64_t i = 0; i < m * k; ++i) a.push_back(static_cast<double>(i % 7 - 3));
      for (std::int64_t i = 0; i < k * n; ++i) b.push_back(static_cast<double>(i % 5 - 2));
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          for (std::int64_t p = 0; p < k; ++p) {
            expected[static_cast<std::size_t>(i * n + j)] +=
                a[static_cast<std::size_t>(p * m + i)] * b[static_cast<std::size_t>(p * n + j)];
          }
        }
      }
      add_product(
          {.m = m, .n = n, .k = k, .a_row_stride = 1, .a_column_stride = m, .b_row_stride = n, .c_row_stride = n},
          a.data(), b.data(), c.data());
      CHECK(c == expected);
    }
  }
}
