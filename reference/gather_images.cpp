#include "engine/core/random.h"
#include "reference/reference.h"

namespace heddle::reference {

Batch gather_images(const Array& images, const Array& labels, const Array& order, const Array& cursor, std::int64_t n,
                    const GatherImagesParams& params) {
  const std::int64_t height = images.dim(1), width = images.dim(2), channels = images.dim(3);
  const auto begin = static_cast<std::int64_t>(cursor[cursor_slot::kPosition]) + params.first;
  const auto epoch = static_cast<std::uint64_t>(cursor[cursor_slot::kEpoch]);
  Batch batch{Array({n, height, width, channels}), Array({n})};
  for (std::int64_t j = 0; j < n; ++j) {
    const auto image = static_cast<std::int64_t>(order[begin + j]);
    batch.labels[j] = labels[image];
    // The rule that op_params.h states.
    const auto words = philox_block(params.seed, static_cast<std::uint64_t>(image), epoch | 1ull << 63);
    const bool flip = params.random_flip && (words[0] & 1) != 0;
    const std::int64_t crop = params.random_crop, sides = 2 * crop + 1;
    const std::int64_t down = static_cast<std::int64_t>(words[1] * static_cast<std::uint64_t>(sides) >> 32) - crop;
    const std::int64_t right = static_cast<std::int64_t>(words[2] * static_cast<std::uint64_t>(sides) >> 32) - crop;
    for (std::int64_t h = 0; h < height; ++h) {
      for (std::int64_t w = 0; w < width; ++w) {
        const std::int64_t from_h = h + down, from_w = (flip ? width - 1 - w : w) + right;
        const bool inside = from_h >= 0 && from_h < height && from_w >= 0 && from_w < width;
        for (std::int64_t c = 0; c < channels; ++c) {
          const double value = inside ? images.at(image, from_h, from_w, c) : 0;
          const auto channel = static_cast<std::size_t>(c);
          batch.images.at(j, h, w, c) =
              value * static_cast<double>(params.scale[channel]) + static_cast<double>(params.shift[channel]);
        }
      }
    }
  }
  return batch;
}

}  // namespace heddle::reference
