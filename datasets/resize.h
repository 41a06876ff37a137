// Brings images to another size or number of channels.
#pragma once

#include <cstdint>
#include <vector>

#include "datasets/image_dataset.h"

namespace heddle::datasets {

// What becomes of pixels where an image shrinks; where it grows both interpolate linearly.
enum class Shrink : std::uint8_t {
  area,    // the mean of the area that a pixel covers: for pictures that may be much larger
  linear,  // as where it grows, from the two nearest pixels an axis
};

// A change of size, computed once for images of one size. Each axis by itself: pixel i of a target axis lies at
// s = (i + 1/2) from/to - 1/2 of the source, limited to [0, from - 1], and is (1 - f) x[j] + f x[j+1] with j the whole
// part of s and f the rest; results are rounded to the nearest value, halves upwards. With Shrink::linear that is
// torch.nn.functional.interpolate(mode="bilinear", align_corners=False, antialias=False).
class Resizer {
 public:
  struct Size {
    std::int64_t height = 0;
    std::int64_t width = 0;
  };
  // Throws: InvalidArgument unless all are positive.
  Resizer(Size from, Size to, std::int64_t channels, Shrink shrink);

  // source (from.height, from.width, channels) -> target (to.height, to.width, channels). May be called by several
  // threads.
  void run(const std::uint8_t* source, std::uint8_t* target) const;

 private:
  // Source positions [begin, begin + weights.size()) that make one target position; the weights add up to 1.
  struct Taps {
    std::int64_t begin = 0;
    std::vector<double> weights;
  };
  static std::vector<Taps> taps_for(std::int64_t from, std::int64_t to, Shrink shrink);

  Size from_;
  std::int64_t channels_;
  std::vector<Taps> rows_, columns_;
};

// All images of the set, with Shrink::linear. Throws: InvalidArgument as Resizer; OutOfMemory.
void resize_images(ImageDataset& set, std::int64_t height, std::int64_t width);

// Images of one channel become images of `channels` equal ones. Throws: InvalidArgument if they have several, but not
// `channels`.
void repeat_channels(ImageDataset& set, std::int64_t channels);

}  // namespace heddle::datasets
