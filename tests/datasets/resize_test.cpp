// Other sizes and channels: against PyTorch's interpolate, and by hand.
#include "datasets/resize.h"

#include "engine/core/error.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::datasets;

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes resized(const Bytes& image, Resizer::Size from, Resizer::Size to, std::int64_t channels = 1) {
  Bytes out(static_cast<std::size_t>(to.height * to.width * channels));
  Resizer(from, to, channels, Shrink::linear).run(image.data(), out.data());
  return out;
}

}  // namespace

TEST_CASE("images are resized bilinearly, halves rounded upwards") {
  const Bytes image{0, 50, 255, 7, 100, 200, 3, 90, 17, 33, 240, 128, 9, 250, 66, 31};
  // In exact fractions. PyTorch's interpolate(mode="bilinear", align_corners=False) gives the same to the nearest
  // value, but for five halves here that its arithmetic in float leaves just below.
  CHECK(resized(image, {4, 4}, {2, 3}) == Bytes{63, 127, 62, 34, 147, 92});
  CHECK(resized(image, {4, 4}, {3, 2}) == Bytes{46, 117, 88, 115, 112, 71});
  CHECK(resized(image, {4, 4}, {7, 5}) == Bytes{0,   35, 153, 181, 7,   36,  83,  134, 126, 37, 93,  160,
                                                105, 40, 84,  59,  99,  119, 118, 109, 16,  39, 138, 196,
                                                121, 12, 124, 150, 109, 66,  9,   178, 158, 56, 31});
  CHECK(resized(image, {4, 4}, {6, 9}) == Bytes{0,   8,  31, 61,  153, 244, 159, 48,  7,   50, 63, 96,  125, 127,
                                                129, 98, 62, 49,  86,  101, 139, 165, 107, 50, 63, 87,  96,  31,
                                                36,  49, 69, 131, 193, 170, 135, 122, 13,  34, 92, 142, 147, 152,
                                                124, 92, 80, 9,   49,  156, 240, 158, 76,  52, 37, 31});
  CHECK(resized(image, {4, 4}, {4, 4}) == image);
}

TEST_CASE("channels do not mix, and a row of one pixel stretches") {
  CHECK(resized({0, 200, 100, 0}, {1, 2}, {1, 4}, 2) == Bytes{0, 200, 25, 150, 75, 50, 100, 0});
  CHECK(resized({7, 8}, {1, 1}, {2, 2}, 2) == Bytes{7, 8, 7, 8, 7, 8, 7, 8});
}

TEST_CASE("all images of a set change their size, whatever the number of them") {
  ImageDataset set{.count = 37, .height = 2, .width = 2, .channels = 1};
  for (int i = 0; i < 37; ++i) {
    for (const int corner : {0, 1, 2, 3}) set.images.push_back(static_cast<std::uint8_t>(i + 10 * corner));
  }
  const Bytes before = set.images;
  resize_images(set, 3, 5);
  CHECK(set.height == 3);
  CHECK(set.width == 5);
  REQUIRE(set.images.size() == 37 * 15);
  for (std::size_t i = 0; i < 37; ++i) {
    const auto at = [](const Bytes& all, std::size_t begin, std::size_t n) {
      return Bytes(all.begin() + static_cast<std::ptrdiff_t>(begin),
                   all.begin() + static_cast<std::ptrdiff_t>(begin + n));
    };
    CHECK(at(set.images, i * 15, 15) == resized(at(before, i * 4, 4), {2, 2}, {3, 5}));
  }
}

TEST_CASE("grey images become images of several equal channels; others are refused") {
  ImageDataset set{.images = {1, 2, 3}, .count = 3, .height = 1, .width = 1, .channels = 1};
  repeat_channels(set, 1);
  CHECK(set.images == Bytes{1, 2, 3});
  repeat_channels(set, 3);
  CHECK(set.channels == 3);
  CHECK(set.images == Bytes{1, 1, 1, 2, 2, 2, 3, 3, 3});
  CHECK_THROWS_WITH(repeat_channels(set, 2), "the images have 3 channels, 2 are wanted");
}
