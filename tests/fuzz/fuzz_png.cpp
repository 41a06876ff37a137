// Fuzzes the PNG reader, to grey and resize.
#include <zlib.h>

#include <cstdlib>

#include "datasets/image_file.h"
#include "engine/core/error.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/support/png_bytes.h"

using namespace heddle;

std::vector<std::string> make_seeds() {
  std::vector<std::string> seeds;
  for (const int colour : {0, 2, 3, 4, 6}) {
    for (const int depth : {1, 8, 16}) {
      if ((depth == 1 && colour != 0 && colour != 3) || (depth == 16 && colour == 3)) continue;
      for (const bool interlaced : {false, true}) {
        seeds.push_back(
            test::png_bytes({.width = 9, .height = 5, .depth = depth, .colour = colour, .interlaced = interlaced}));
      }
    }
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const datasets::Image image = datasets::parse_png({data, size}, "fuzz", {.max_pixels = 1 << 20});
    if (image.pixels.size() != static_cast<std::size_t>(image.height * image.width * image.channels)) std::abort();
    const datasets::Image small = datasets::resize(datasets::to_grey(image), 28, 28);
    if (small.pixels.size() != 784) std::abort();
  } catch (const IoError&) {
  } catch (const NotSupported&) {
  }
  return 0;
}
