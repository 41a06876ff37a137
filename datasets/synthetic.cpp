#include "datasets/synthetic.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/random.h"

namespace heddle::datasets {
namespace {

constexpr std::int64_t kCell = 7;        // pixels between two points of a template's grid
constexpr std::int64_t kMaxShift = 2;    // pixels
constexpr std::int64_t kNoiseShare = 5;  // of 32: makes a standard deviation of 33
constexpr std::int64_t kOne = 256;       // fixed-point 1
constexpr std::int64_t kMaxNbytes = std::int64_t{1} << 40;

enum Stream : std::uint64_t { kTemplate, kLabel, kShape, kNoise };

// Random bits that depend on the arguments alone.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t split, Stream stream) : seed_(seed), stream_(split * 8 + stream) {}
  std::array<std::uint32_t, 4> block(std::int64_t a, std::int64_t b = 0) const {
    return philox_block(seed_, static_cast<std::uint64_t>(b), (static_cast<std::uint64_t>(a) << 8) | stream_);
  }
  std::uint32_t operator()(std::int64_t a, std::int64_t b = 0) const { return block(a, b)[0]; }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
};

std::int64_t below(std::uint32_t bits, std::int64_t n) {
  return static_cast<std::int64_t>(std::uint64_t{bits} * static_cast<std::uint64_t>(n) >> 32);
}

// The sum of eight random bytes, close to a normal distribution around 1020; `half` chooses those of the block.
std::int64_t sum_of_bytes(const std::array<std::uint32_t, 4>& block, std::int64_t half) {
  std::int64_t sum = 0;
  for (const std::int64_t word : {2 * half, 2 * half + 1}) {
    for (std::uint32_t bits = block[static_cast<std::size_t>(word)]; bits != 0; bits >>= 8) sum += bits & 255;
  }
  return sum;
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
  const Random noise_bits(o.seed, split, kNoise);
  std::size_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t label = set.labels[static_cast<std::size_t>(i)];
    const std::int64_t dy = below(shape(i, 0), 2 * kMaxShift + 1);
    const std::int64_t dx = below(shape(i, 1), 2 * kMaxShift + 1);
    const std::int64_t contrast = kOne / 4 + below(shape(i, 2), kOne / 4);  // 0.25 to 0.5
    const std::int64_t brightness = 48 + below(shape(i, 3), 96);
    std::int64_t pixel = 0;
    std::array<std::uint32_t, 4> bits{};
    for (std::int64_t y = 0; y < o.height; ++y) {
      for (std::int64_t x = 0; x < o.width; ++x) {
        for (std::int64_t c = 0; c < o.channels; ++c, ++pixel) {
          if (pixel % 2 == 0) bits = noise_bits.block(i, pixel / 2);
          const std::int64_t deviation = sum_of_bytes(bits, pixel % 2) - 1020;
          const std::int64_t value = (templates.at(label, y + dy, x + dx, c) - 128) * contrast / kOne + brightness +
                                     28 + deviation * kNoiseShare / 32;
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
