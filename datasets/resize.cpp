#include "datasets/resize.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/parallel.h"

namespace heddle::datasets {

std::vector<Resizer::Taps> Resizer::taps_for(std::int64_t from, std::int64_t to, Shrink shrink) {
  std::vector<Taps> taps(static_cast<std::size_t>(to));
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (std::int64_t i = 0; i < to; ++i) {
    Taps& tap = taps[static_cast<std::size_t>(i)];
    if (from > to && shrink == Shrink::area) {
      // Position i covers [low, high) of the source.
      const double low = static_cast<double>(i) * scale;
      const double high = std::min(static_cast<double>(i + 1) * scale, static_cast<double>(from));
      tap.begin = static_cast<std::int64_t>(low);
      for (std::int64_t j = tap.begin; j < from && static_cast<double>(j) < high; ++j) {
        const double covered = std::min(high, static_cast<double>(j + 1)) - std::max(low, static_cast<double>(j));
        tap.weights.push_back(covered / scale);
      }
    } else {
      // Centres of pixels lie at halves; outside the outermost centres the edge value holds.
      const double centre = (static_cast<double>(i) + 0.5) * scale - 0.5;
      const double inside = std::clamp(centre, 0.0, static_cast<double>(from - 1));
      tap.begin = std::min(static_cast<std::int64_t>(inside), std::max<std::int64_t>(from - 2, 0));
      const double share = inside - static_cast<double>(tap.begin);
      tap.weights.push_back(1.0 - share);
      if (from > 1) tap.weights.push_back(share);
    }
  }
  return taps;
}

Resizer::Resizer(Size from, Size to, std::int64_t channels, Shrink shrink) : from_(from), channels_(channels) {
  HEDDLE_CHECK(to.height > 0 && to.width > 0, "resize: the wanted size is ", to.height, "x", to.width);
  HEDDLE_CHECK(from.height > 0 && from.width > 0 && channels > 0, "resize: the image is ", from.height, "x", from.width,
               "x", channels);
  rows_ = taps_for(from.height, to.height, shrink);
  columns_ = taps_for(from.width, to.width, shrink);
}

// Sums in double are right to 1e-12; with this much on top halves are rounded upwards whatever those last bits are.
constexpr double kHalf = 0.5 + 1e-9;

void Resizer::run(const std::uint8_t* source, std::uint8_t* target) const {
  std::vector<double> row(static_cast<std::size_t>(from_.width * channels_));  // one target row at the source's width
  for (const Taps& vertical : rows_) {
    std::fill(row.begin(), row.end(), 0.0);
    for (std::size_t j = 0; j < vertical.weights.size(); ++j) {
      const std::uint8_t* line = source + (static_cast<std::size_t>(vertical.begin) + j) * row.size();
      for (std::size_t x = 0; x < row.size(); ++x) row[x] += vertical.weights[j] * line[x];
    }
    for (const Taps& horizontal : columns_) {
      for (std::int64_t c = 0; c < channels_; ++c) {
        double sum = 0.0;
        for (std::size_t j = 0; j < horizontal.weights.size(); ++j) {
          const std::int64_t x = horizontal.begin + static_cast<std::int64_t>(j);
          sum += horizontal.weights[j] * row[static_cast<std::size_t>(x * channels_ + c)];
        }
        *target++ = static_cast<std::uint8_t>(std::clamp(std::floor(sum + kHalf), 0.0, 255.0));
      }
    }
  }
}

void resize_images(ImageDataset& set, std::int64_t height, std::int64_t width) {
  if (set.height == height && set.width == width) return;
  const Resizer resizer({set.height, set.width}, {height, width}, set.channels, Shrink::linear);
  const auto from = static_cast<std::size_t>(set.height * set.width * set.channels);
  const auto to = static_cast<std::size_t>(height * width * set.channels);
  std::vector<std::uint8_t> images(static_cast<std::size_t>(set.count) * to);
  parallel_for(set.count, 16, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      resizer.run(set.images.data() + i * from, images.data() + i * to);
    }
  });
  set.images = std::move(images);
  set.height = height;
  set.width = width;
}

void repeat_channels(ImageDataset& set, std::int64_t channels) {
  if (set.channels == channels) return;
  HEDDLE_CHECK(set.channels == 1 && channels >= 1, "the images have ", set.channels, " channels, ", channels,
               " are wanted");
  std::vector<std::uint8_t> images(set.images.size() * static_cast<std::size_t>(channels));
  auto at = images.begin();
  for (const std::uint8_t value : set.images) at = std::fill_n(at, channels, value);
  set.images = std::move(images);
  set.channels = channels;
}

}  // namespace heddle::datasets
