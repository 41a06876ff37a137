#include "datasets/synthetic.h"

#include <algorithm>
#include <utility>

#include "engine/core/error.h"

namespace heddle::datasets {
namespace {

constexpr std::int64_t kCell = 7;        // pixels between two points of a template's grid
constexpr std::int64_t kMaxShift = 2;    // pixels
constexpr std::int64_t kNoiseShare = 5;  // how much of the noise is added, in eighths
constexpr std::int64_t kOne = 256;       // fixed-point 1
constexpr std::int64_t kMaxNbytes = std::int64_t{1} << 40;

enum Stream : std::uint64_t { kTemplate, kLabel, kShape, kNoise };

// 64 random bits that depend on the arguments alone: the output function of SplitMix64 over a chain of keys.
// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t split, Stream stream) : key_(mix(mix(mix(seed) ^ split) ^ stream)) {}
  std::uint64_t operator()(std::int64_t a, std::int64_t b = 0) const {
    return mix(mix(key_ ^ static_cast<std::uint64_t>(a)) ^ static_cast<std::uint64_t>(b));
  }

 private:
  std::uint64_t key_;
};

std::int64_t below(std::uint64_t bits, std::int64_t n) {
  return static_cast<std::int64_t>((bits >> 32) * static_cast<std::uint64_t>(n) >> 32);
}

// Templates of all classes, (num_classes, height + 2 shift, width + 2 shift, channels), values 0 to 255.
class Templates {
 public:
  explicit Templates(const SyntheticOptions& o)
      : height_(o.height + 2 * kMaxShift), width_(o.width + 2 * kMaxShift), channels_(o.channels) {
    const Random random(o.seed, 0, kTemplate);
    const std::int64_t grid_width = width_ / kCell + 2;
    const std::int64_t grid_size = (height_ / kCell + 2) * grid_width;
    pixels_.resize(static_cast<std::size_t>(o.num_classes * height_ * width_ * channels_));
    std::size_t at = 0;
    for (std::int64_t k = 0; k < o.num_classes; ++k) {
      for (std::int64_t y = 0; y < height_; ++y) {
        for (std::int64_t x = 0; x < width_; ++x) {
          for (std::int64_t c = 0; c < channels_; ++c) {
            const auto point = [&](std::int64_t dy, std::int64_t dx) {
              return below(random(k, ((y / kCell + dy) * grid_width + x / kCell + dx) + c * grid_size), 256);
            };
            const std::int64_t fy = y % kCell;
            const std::int64_t fx = x % kCell;
            const std::int64_t top = point(0, 0) * (kCell - fx) + point(0, 1) * fx;
            const std::int64_t bottom = point(1, 0) * (kCell - fx) + point(1, 1) * fx;
            pixels_[at++] = static_cast<std::uint8_t>((top * (kCell - fy) + bottom * fy) / (kCell * kCell));
          }
        }
      }
    }
  }
  std::int64_t at(std::int64_t k, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return pixels_[static_cast<std::size_t>(((k * height_ + y) * width_ + x) * channels_ + c)];
  }

 private:
  std::int64_t height_;
  std::int64_t width_;
  std::int64_t channels_;
  std::vector<std::uint8_t> pixels_;
};

// Every num_classes labels in a row hold each class once, in random order.
std::vector<std::uint8_t> make_labels(std::int64_t count, std::int64_t num_classes, const Random& random) {
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(count));
  std::vector<std::uint8_t> order(static_cast<std::size_t>(num_classes));
  for (std::int64_t begin = 0; begin < count; begin += num_classes) {
    for (std::int64_t i = 0; i < num_classes; ++i) order[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i);
    for (std::int64_t i = num_classes - 1; i > 0; --i) {
      std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(below(random(begin, i), i + 1))]);
    }
    const std::int64_t n = std::min(num_classes, count - begin);
    std::copy(order.begin(), order.begin() + n, labels.begin() + begin);
  }
  return labels;
}

ImageDataset make_part(const SyntheticOptions& o, std::int64_t count, std::uint64_t split, const Templates& templates) {
  ImageDataset set;
  set.count = count;
  set.height = o.height;
  set.width = o.width;
  set.channels = o.channels;
  set.num_classes = o.num_classes;
  for (std::int64_t k = 0; k < o.num_classes; ++k) set.class_names.push_back(join_text("class ", k));
  set.labels = make_labels(count, o.num_classes, Random(o.seed, split, kLabel));
  set.images.resize(static_cast<std::size_t>(count * o.height * o.width * o.channels));
  const Random shape(o.seed, split, kShape);
  const Random noise(o.seed, split, kNoise);
  std::size_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t label = set.labels[static_cast<std::size_t>(i)];
    const std::int64_t dy = below(shape(i, 0), 2 * kMaxShift + 1);
    const std::int64_t dx = below(shape(i, 1), 2 * kMaxShift + 1);
    const std::int64_t contrast = kOne / 4 + below(shape(i, 2), kOne / 4);  // 0.25 to 0.5
    const std::int64_t brightness = 48 + below(shape(i, 3), 96);
    std::int64_t pixel = 0;
    for (std::int64_t y = 0; y < o.height; ++y) {
      for (std::int64_t x = 0; x < o.width; ++x) {
        for (std::int64_t c = 0; c < o.channels; ++c, ++pixel) {
          // The sum of eight random bytes is close to a normal distribution.
          std::int64_t sum = -1020;
          for (std::uint64_t bits = noise(i, pixel), n = 0; n < 8; ++n, bits >>= 8)
            sum += static_cast<std::int64_t>(bits & 255);
          const std::int64_t value = (templates.at(label, y + dy, x + dx, c) - 128) * contrast / kOne + brightness +
                                     28 + sum * kNoiseShare / 8 / 4;
          set.images[at++] = static_cast<std::uint8_t>(std::clamp<std::int64_t>(value, 0, 255));
        }
      }
    }
  }
  return set;
}

}  // namespace

ImageDatasetPair make_synthetic(const SyntheticOptions& options) {
  const auto check = [](const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
    HEDDLE_CHECK(value >= low && value <= high, "synthetic: ", name, " is ", value, ", expected ", low, " to ", high);
  };
  check("n_train", options.n_train, 1, std::int64_t{1} << 31);
  check("n_test", options.n_test, 1, std::int64_t{1} << 31);
  check("height", options.height, 1, 4096);
  check("width", options.width, 1, 4096);
  check("channels", options.channels, 1, 64);
  check("num_classes", options.num_classes, 1, 256);
  const std::int64_t image_nbytes = options.height * options.width * options.channels;
  HEDDLE_CHECK((options.n_train + options.n_test) <= kMaxNbytes / image_nbytes, "synthetic: ", options.n_train, " + ",
               options.n_test, " images of ", options.height, "x", options.width, "x", options.channels,
               " are more than ", kMaxNbytes, " bytes");
  const Templates templates(options);
  ImageDatasetPair pair;
  pair.train = make_part(options, options.n_train, 1, templates);
  pair.test = make_part(options, options.n_test, 2, templates);
  pair.name = "synthetic";
  pair.recognised = true;
  return pair;
}

}  // namespace heddle::datasets
