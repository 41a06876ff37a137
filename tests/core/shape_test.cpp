#include "engine/core/shape.h"

#include "tests/support/catch.h"

using namespace heddle;

TEST_CASE("a shape counts its elements and knows its strides") {
  const Shape shape{2, 3, 4};
  CHECK(shape.numel() == 24);
  CHECK(shape.rank() == 3);
  CHECK(shape[-1] == 4);
  CHECK(shape.strides()[0] == 12);
  CHECK(shape.to_string() == "(2,3,4)");
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{0, 5}.numel() == 0);
}

TEST_CASE("impossible shapes are refused by name") {
  CHECK_THROWS_WITH((Shape{2, -3}), Catch::Contains("(2,-3)"));
  CHECK_THROWS_WITH((Shape{std::int64_t{1} << 32, std::int64_t{1} << 32}), Catch::Contains("(4294967296,4294967296)"));
  // A zero does not make the product of the others harmless: ops count elements of single dimensions, too.
  CHECK_THROWS_WITH((Shape{0, std::int64_t{1} << 32, std::int64_t{1} << 32}), Catch::Contains("(0,4294967296,"));
  CHECK(Shape{0, std::int64_t{1} << 62}.strides()[0] == std::int64_t{1} << 62);
  CHECK_THROWS_AS((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), InvalidArgument);
  CHECK_THROWS_AS(Shape({2, 3})[2], InvalidArgument);
  CHECK_THROWS_AS(checked_nbytes(Shape{std::int64_t{1} << 61}, 4), InvalidArgument);
}
