#include "datasets/image_file.h"

#include <algorithm>

#include "engine/core/error.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::datasets;

using Bytes = std::vector<std::uint8_t>;

TEST_CASE("colours become grey by their luma") {
  CHECK(to_grey({1, 4, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}}).pixels == Bytes{76, 150, 29, 255});
  CHECK(to_grey({1, 2, 4, {255, 255, 255, 128, 255, 255, 255, 0}}).pixels == Bytes{128, 0});
  CHECK(to_grey({1, 2, 2, {200, 255, 200, 51}}).pixels == Bytes{200, 40});
  CHECK(to_grey({1, 2, 1, {7, 9}}).pixels == Bytes{7, 9});
  CHECK(to_grey({1, 2, 3, {1, 1, 1, 2, 2, 2}}).channels == 1);
  CHECK_THROWS_AS(to_grey({1, 1, 5, {1, 2, 3, 4, 5}}), InvalidArgument);
}

TEST_CASE("grey becomes colour, and alpha is laid over black") {
  CHECK(to_rgb({1, 2, 1, {7, 9}}).pixels == Bytes{7, 7, 7, 9, 9, 9});
  CHECK(to_rgb({1, 1, 2, {200, 51}}).pixels == Bytes{40, 40, 40});
  CHECK(to_rgb({1, 1, 3, {1, 2, 3}}).pixels == Bytes{1, 2, 3});
  CHECK(to_rgb({1, 2, 4, {10, 20, 30, 255, 255, 0, 100, 51}}).pixels == Bytes{10, 20, 30, 51, 0, 20});
  CHECK(to_rgb({1, 1, 4, {1, 2, 3, 4}}).channels == 3);
  CHECK_THROWS_AS(to_rgb({1, 1, 5, {1, 2, 3, 4, 5}}), InvalidArgument);
}

TEST_CASE("an image that shrinks is averaged over the area") {
  CHECK(resize({2, 2, 1, {0, 100, 100, 200}}, 1, 1).pixels == Bytes{100});
  CHECK(resize({1, 4, 1, {10, 20, 30, 50}}, 1, 2).pixels == Bytes{15, 40});
  // 3 to 2: each covers one pixel and half of the middle one.
  CHECK(resize({1, 3, 1, {0, 90, 240}}, 1, 2).pixels == Bytes{30, 190});
  CHECK(resize({2, 2, 2, {0, 1, 2, 3, 4, 5, 6, 7}}, 1, 2).pixels == Bytes{2, 3, 4, 5});
}

TEST_CASE("an image that grows is interpolated") {
  CHECK(resize({1, 2, 1, {0, 100}}, 1, 4).pixels == Bytes{0, 25, 75, 100});
  CHECK(resize({1, 1, 3, {1, 2, 3}}, 2, 2).pixels == Bytes{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3});
}

TEST_CASE("a constant image stays constant at every size") {
  for (const std::int64_t from : {1, 2, 5, 28, 31}) {
    for (const std::int64_t to : {1, 3, 7, 28, 64}) {
      const Image image{from, from + 1, 3, Bytes(static_cast<std::size_t>(from * (from + 1) * 3), 200)};
      const Image out = resize(image, to, to + 2);
      CHECK(out.height == to);
      CHECK(out.width == to + 2);
      CHECK(out.pixels == Bytes(static_cast<std::size_t>(to * (to + 2) * 3), 200));
    }
  }
}

TEST_CASE("sizes that make no image are refused") {
  CHECK_THROWS_WITH(resize({1, 1, 1, {0}}, 0, 5), "resize: the wanted size is 0x5");
  CHECK_THROWS_AS(resize({0, 1, 1, {}}, 5, 5), InvalidArgument);
}
