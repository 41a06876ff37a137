#include "datasets/image_file.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"

namespace heddle::datasets {
namespace {

// Source positions [begin, begin + weights.size()) that make one target position; the weights add up to 1.
struct Taps {
  std::int64_t begin = 0;
  std::vector<float> weights;
};

std::vector<Taps> taps_for(std::int64_t from, std::int64_t to) {
  std::vector<Taps> taps(static_cast<std::size_t>(to));
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (std::int64_t i = 0; i < to; ++i) {
    Taps& tap = taps[static_cast<std::size_t>(i)];
    if (from >= to) {
      // Position i covers [low, high) of the source.
      const double low = static_cast<double>(i) * scale;
      const double high = std::min(static_cast<double>(i + 1) * scale, static_cast<double>(from));
      tap.begin = static_cast<std::int64_t>(low);
      for (std::int64_t j = tap.begin; j < from && static_cast<double>(j) < high; ++j) {
        const double covered = std::min(high, static_cast<double>(j + 1)) - std::max(low, static_cast<double>(j));
        tap.weights.push_back(static_cast<float>(covered / scale));
      }
    } else {
      // Centres of pixels lie at halves; outside the outermost centres the edge value holds.
      const double centre = (static_cast<double>(i) + 0.5) * scale - 0.5;
      const double inside = std::clamp(centre, 0.0, static_cast<double>(from - 1));
      tap.begin = std::min(static_cast<std::int64_t>(inside), std::max<std::int64_t>(from - 2, 0));
      const auto share = static_cast<float>(inside - static_cast<double>(tap.begin));
      tap.weights.push_back(1.0f - share);
      if (from > 1) tap.weights.push_back(share);
    }
  }
  return taps;
}

}  // namespace

Image to_grey(const Image& image) {
  if (image.channels == 1) return image;
  HEDDLE_CHECK(image.channels >= 2 && image.channels <= 4, "to_grey: the image has ", image.channels,
               " channels, expected 1 to 4");
  Image grey{image.height, image.width, 1, {}};
  grey.pixels.resize(static_cast<std::size_t>(image.height * image.width));
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
    const std::uint8_t* p = image.pixels.data() + i * channels;
    // Thousandths, rounded to nearest.
    std::uint32_t luma = channels >= 3 ? 299u * p[0] + 587u * p[1] + 114u * p[2] : 1000u * p[0];
    if (channels == 2 || channels == 4) luma = (luma * p[channels - 1] + 127) / 255;
    grey.pixels[i] = static_cast<std::uint8_t>((luma + 500) / 1000);
  }
  return grey;
}

Image resize(const Image& image, std::int64_t height, std::int64_t width) {
  HEDDLE_CHECK(height > 0 && width > 0, "resize: the wanted size is ", height, "x", width);
  HEDDLE_CHECK(image.height > 0 && image.width > 0 && image.channels > 0, "resize: the image is ", image.height, "x",
               image.width, "x", image.channels);
  if (image.height == height && image.width == width) return image;
  const std::vector<Taps> rows = taps_for(image.height, height);
  const std::vector<Taps> columns = taps_for(image.width, width);
  const std::int64_t channels = image.channels;
  Image out{height, width, channels, {}};
  out.pixels.resize(static_cast<std::size_t>(height * width * channels));
  std::vector<float> row(static_cast<std::size_t>(image.width * channels));  // one target row at the source's width
  std::size_t at = 0;
  for (const Taps& vertical : rows) {
    std::fill(row.begin(), row.end(), 0.0f);
    for (std::size_t j = 0; j < vertical.weights.size(); ++j) {
      const std::uint8_t* source = image.pixels.data() + (static_cast<std::size_t>(vertical.begin) + j) * row.size();
      for (std::size_t x = 0; x < row.size(); ++x) row[x] += vertical.weights[j] * static_cast<float>(source[x]);
    }
    for (const Taps& horizontal : columns) {
      for (std::int64_t c = 0; c < channels; ++c) {
        float sum = 0.0f;
        for (std::size_t j = 0; j < horizontal.weights.size(); ++j) {
          const std::int64_t x = horizontal.begin + static_cast<std::int64_t>(j);
          sum += horizontal.weights[j] * row[static_cast<std::size_t>(x * channels + c)];
        }
        out.pixels[at++] = static_cast<std::uint8_t>(std::clamp(std::lround(sum), 0l, 255l));
      }
    }
  }
  return out;
}

}  // namespace heddle::datasets
