// A learnable image set that is computed, not stored: for tests, benchmarks and machines without the real data.
#pragma once

#include <cstdint>

#include "datasets/image_dataset.h"

namespace heddle::datasets {

struct SyntheticOptions {
  std::int64_t n_train = 6000;
  std::int64_t n_test = 1000;
  std::int64_t height = 28;
  std::int64_t width = 28;
  std::int64_t channels = 1;
  std::int64_t num_classes = 10;  // 1 to 256
  std::uint64_t seed = 1;
};

// Each class has a smooth random template; an image is its template moved by up to two pixels, with random contrast and
// brightness, and noise. A linear model gets more than 95 % right after some hundred steps, not at once.
// Everything is integer arithmetic on a counter-based generator, so the same options give the same bytes everywhere,
// and image i does not depend on how many there are. Throws: InvalidArgument naming the option.
ImageDatasetPair make_synthetic(const SyntheticOptions& options = {});

}  // namespace heddle::datasets
