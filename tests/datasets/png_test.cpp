#include <png.h>

#include <cstdio>

#include "datasets/image_file.h"
#include "engine/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/contains.h"
#include "tests/support/png_bytes.h"
#include "tests/support/temp_folder.h"

using namespace heddle;
using namespace heddle::datasets;
using namespace heddle::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

Image parse(const std::string& content) { return parse_png(to_bytes(content), "x.png"); }

std::string refusal(const std::string& content) {
  return message_of<IoError>([&] { parse(content); });
}

}  // namespace

TEST_CASE("PNG files of every kind give 8-bit pixels") {
  Image image = parse(png_bytes({.width = 3, .height = 2, .rows = std::string("\0\1\2\3\0\4\5\6", 8)}));
  CHECK(image.height == 2);
  CHECK(image.width == 3);
  CHECK(image.channels == 1);
  CHECK(image.pixels == Bytes{1, 2, 3, 4, 5, 6});
  image = parse(png_bytes({.width = 8, .height = 1, .depth = 1, .rows = std::string("\0\xa0", 2)}));
  CHECK(image.pixels == Bytes{255, 0, 255, 0, 0, 0, 0, 0});
  image = parse(png_bytes({.width = 2, .height = 1, .depth = 16, .rows = std::string("\0\xff\xff\x80\x80", 5)}));
  CHECK(image.pixels == Bytes{255, 128});
  image = parse(png_bytes({.width = 1, .height = 1, .colour = 2, .rows = std::string("\0\1\2\3", 4)}));
  CHECK(image.channels == 3);
  CHECK(image.pixels == Bytes{1, 2, 3});
  image = parse(png_bytes({.width = 1, .height = 1, .colour = 4, .rows = std::string("\0\1\2", 3)}));
  CHECK(image.channels == 2);
  image = parse(png_bytes({.width = 1, .height = 1, .colour = 6, .rows = std::string("\0\1\2\3\4", 5)}));
  CHECK(image.pixels == Bytes{1, 2, 3, 4});
  image = parse(png_bytes({.width = 2, .height = 1, .colour = 3, .rows = std::string("\0\1\0", 3)}));
  CHECK(image.channels == 3);
  CHECK(image.pixels == Bytes{40, 50, 60, 10, 20, 30});
  // A palette with a transparent entry.
  const std::string palette = png_chunk("PLTE", "\x0a\x14\x1e\x28\x32\x3c") + png_chunk("tRNS", std::string("\0", 1));
  image = parse(
      png_bytes({.width = 2, .height = 1, .colour = 3, .rows = std::string("\0\1\0", 3), .before_data = palette}));
  CHECK(image.channels == 4);
  CHECK(image.pixels == Bytes{40, 50, 60, 255, 10, 20, 30, 0});
}

TEST_CASE("an interlaced PNG written by libpng comes back") {
  const TempFolder folder;
  Bytes pixels(31 * 17 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7);
  png_image spec{};
  spec.version = PNG_IMAGE_VERSION;
  spec.width = 31;
  spec.height = 17;
  spec.format = PNG_FORMAT_RGB;
  REQUIRE(png_image_write_to_file(&spec, (folder / "a.png").c_str(), 0, pixels.data(), 0, nullptr) != 0);
  CHECK(read_png(folder / "a.png").pixels == pixels);

  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::FILE* out = std::fopen((folder / "b.png").c_str(), "wb");
  REQUIRE(out != nullptr);
  png_init_io(png, out);
  png_set_IHDR(png, info, 31, 17, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_ADAM7, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_bytep> rows;
  for (std::size_t y = 0; y < 17; ++y) rows.push_back(pixels.data() + y * 31 * 3);
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  std::fclose(out);
  CHECK(read_png(folder / "b.png").pixels == pixels);
}

TEST_CASE("an image that is written comes back, and equal images give equal files") {
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    Image image{17, 31, channels, Bytes(static_cast<std::size_t>(17 * 31 * channels))};
    for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<std::uint8_t>(i * 151 >> 3);
    const std::string png = encode_png(image);
    CHECK(encode_png(image) == png);
    const Image read = parse(png);
    CHECK((read.height == 17 && read.width == 31 && read.channels == channels));
    CHECK(read.pixels == image.pixels);
  }
  CHECK_THROWS_AS(encode_png({2, 2, 1, Bytes(3)}), InvalidArgument);
  CHECK_THROWS_AS(encode_png({1, 1, 5, Bytes(5)}), InvalidArgument);
  CHECK_THROWS_AS(encode_png({0, 1, 1, {}}), InvalidArgument);
}

TEST_CASE("broken PNG files are refused with the reason") {
  const TempFolder folder;
  contains(refusal(""), "x.png: is no PNG image");
  contains(refusal("GIF89a........"), "is no PNG image");
  const std::string good = png_bytes({.width = 20, .height = 20, .rows = noise_bytes(0) + [] {
                                        std::string rows;
                                        for (std::uint32_t y = 0; y < 20; ++y)
                                          rows += std::string(1, '\0') + noise_bytes(20, y);
                                        return rows;
                                      }()});
  CHECK(parse(good).pixels.size() == 400);
  for (std::size_t n = 0; n < good.size(); ++n) {
    INFO("cut at " << n);
    CHECK_FALSE(refusal(good.substr(0, n)).empty());
  }
  contains(refusal(good.substr(0, 60)), "is a broken PNG: libpng reports \"file is cut off\"");
  std::string flipped = good;
  flipped[100] = static_cast<char>(flipped[100] ^ 4);
  contains(refusal(flipped), "is a broken PNG");
  contains(refusal(png_bytes({.width = 0})), "is a broken PNG");
  contains(refusal(png_bytes({.width = 20, .height = 20, .rows = std::string(50, '\0')})), "is a broken PNG");
  contains(message_of<IoError>([&] { read_png(folder / "none.png"); }), "No such file");
  contains(message_of<IoError>([&] { read_png(folder.path()); }), "is a directory");
}

TEST_CASE("a PNG that claims too many pixels costs no memory") {
  contains(refusal(png_bytes({.width = 100000, .height = 100000, .rows = "x"})),
           "has 100000x100000 pixels, the limit is 67108864");
  contains(refusal(png_bytes({.width = 2000000, .height = 1, .rows = "x"})), "is a broken PNG");
  const std::string claims = png_bytes({.width = 8000, .height = 8000, .colour = 6, .rows = "x"});
  const ChildResult result = run_in_child([&] { return refusal(claims); });
  contains(result.text, "claims 8000x8000 pixels, more than its ");
  if (!kInstrumented) CHECK(result.peak_growth_nbytes < 16 << 20);
  CHECK_THROWS_AS(parse_png(to_bytes(png_bytes({})), "x", {.max_pixels = 11}), IoError);
}
