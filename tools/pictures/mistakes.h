// Which test images a model gets wrong, worst first, and what they look like. Used by the end of each epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "datasets/image_file.h"
#include "engine/data/dataset.h"
#include "tools/evaluation.h"

namespace heddle::tools {

struct Mistake {
  std::int64_t index = 0;  // of the image in the test set
  std::int64_t label = 0;
  std::int64_t prediction = 0;
  double loss = 0.0;  // -log of the probability of the label
  datasets::Image image;
};

// The `count` misclassified images with the largest loss (fewer if fewer are wrong), larger losses first, of equal ones
// the smaller index. dataset: the one that was evaluated. Copies that many images from its device.
std::vector<Mistake> worst_mistakes(const Evaluation& evaluation, const data::ResidentDataset& dataset,
                                    std::size_t count);

}  // namespace heddle::tools
