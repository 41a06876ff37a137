// The head of a training step: a batch of resident uint8 images, augmented and normalised in one pass. Used through
// CpuBackend. An image is augmented as bytes, then converted: by the SIMD table for f32, else by the loop here.
#include <algorithm>
#include <cstring>

#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/simd/simd_kernels.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

struct ImageSize {
  std::int64_t height, width, channels;
  std::int64_t numel() const { return height * width * channels; }
};

// What happens to one image; the rule is in op_params.h.
struct Augmentation {
  bool flip = false;
  std::int64_t down = 0, right = 0;

  Augmentation(const GatherImagesParams& params, std::uint64_t epoch, std::int64_t image) {
    const auto words = philox_block(params.seed, static_cast<std::uint64_t>(image), epoch | std::uint64_t{1} << 63);
    const auto sides = static_cast<std::uint64_t>(2 * params.random_crop + 1);
    flip = params.random_flip && (words[0] & 1) != 0;
    down = static_cast<std::int64_t>(words[1] * sides >> 32) - params.random_crop;
    right = static_cast<std::int64_t>(words[2] * sides >> 32) - params.random_crop;
  }
};

void augment(const std::uint8_t* from, const ImageSize& size, const Augmentation& a, std::uint8_t* to) {
  const std::int64_t row = size.width * size.channels;
  // Columns [begin, end) of the unflipped result come from inside the image.
  const std::int64_t begin = std::clamp<std::int64_t>(-a.right, 0, size.width);
  const std::int64_t end = std::clamp<std::int64_t>(size.width - a.right, begin, size.width);
  for (std::int64_t h = 0; h < size.height; ++h, to += row) {
    const std::int64_t source = h + a.down;
    if (source < 0 || source >= size.height || begin == end) {
      std::fill_n(to, row, std::uint8_t{0});
      continue;
    }
    std::fill_n(to, begin * size.channels, std::uint8_t{0});
    std::copy_n(from + source * row + (begin + a.right) * size.channels, (end - begin) * size.channels,
                to + begin * size.channels);
    std::fill_n(to + end * size.channels, (size.width - end) * size.channels, std::uint8_t{0});
    if (!a.flip) continue;
    for (std::int64_t left = 0, right = size.width - 1; left < right; ++left, --right) {
      std::swap_ranges(to + left * size.channels, to + (left + 1) * size.channels, to + right * size.channels);
    }
  }
}

template <class T>
void normalise(const std::uint8_t* from, const ImageSize& size, const GatherImagesParams& params, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    simd::simd_kernels().bytes_to_float(from, params.scale.data(), params.shift.data(), size.channels, to,
                                        size.numel());
  } else {
    using C = Compute<T>;
    for (std::int64_t i = 0; i < size.numel(); ++i) {
      const auto c = static_cast<std::size_t>(i % size.channels);
      to[i] =
          convert_to<T>(static_cast<C>(from[i]) * static_cast<C>(params.scale[c]) + static_cast<C>(params.shift[c]));
    }
  }
}

}  // namespace

void CpuBackend::gather_images(const Tensor& images, const Tensor& labels, const Tensor& order, Tensor& cursor,
                               const GatherImagesParams& params, Tensor& y, Tensor& batch_labels) {
  const ImageSize size{y.dim(1), y.dim(2), y.dim(3)};
  const std::int64_t n = y.dim(0), numel = size.numel();
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, numel));
  const bool augmented = params.random_flip || params.random_crop > 0;
  const auto* const from = data_of<std::uint8_t>(images);
  const auto* const from_labels = data_of<std::uint8_t>(labels);
  auto* const place = data_of<std::int64_t>(cursor);
  const auto epoch = static_cast<std::uint64_t>(place[cursor_slot::kEpoch]);
  const auto* const index = data_of<std::int32_t>(order) + place[cursor_slot::kPosition] + params.first;
  auto* const to_labels = data_of<std::int64_t>(batch_labels);
  Tensor scratch;
  if (augmented) scratch = Tensor::empty({parallel_parts(n, grain), numel}, DType::u8);
  auto* const buffers = augmented ? data_of<std::uint8_t>(scratch) : nullptr;
  visit_floats("gather_images", y.dtype(), [&]<class T>(TypeTag<T>) {
    T* const to = data_of<T>(y);
    parallel_for(n, grain, [&](std::int64_t first, std::int64_t last, int part) {
      for (std::int64_t j = first; j < last; ++j) {
        const std::int64_t image = index[j];
        const std::uint8_t* pixels = from + image * numel;
        if (augmented) {
          augment(pixels, size, Augmentation(params, epoch, image), buffers + part * numel);
          pixels = buffers + part * numel;
        }
        normalise(pixels, size, params, to + j * numel);
        to_labels[j] = from_labels[image];
      }
    });
  });
  place[cursor_slot::kPosition] += params.total > 0 ? params.total : n;
}

}  // namespace heddle::cpu
