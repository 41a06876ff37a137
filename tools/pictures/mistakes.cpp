#include "tools/pictures/mistakes.h"

#include <algorithm>

namespace heddle::tools {

std::vector<Mistake> worst_mistakes(const Evaluation& evaluation, const data::ResidentDataset& dataset,
                                    std::size_t count) {
  std::vector<Mistake> mistakes;
  for (std::size_t i = 0; i < evaluation.predictions.size(); ++i) {
    if (evaluation.predictions[i] == evaluation.labels[i]) continue;
    mistakes.push_back({.index = static_cast<std::int64_t>(i),
                        .label = evaluation.labels[i],
                        .prediction = evaluation.predictions[i],
                        .loss = double{evaluation.losses[i]},
                        .image = {}});
  }
  const std::size_t kept = std::min(count, mistakes.size());
  std::partial_sort(
      mistakes.begin(), mistakes.begin() + static_cast<std::ptrdiff_t>(kept), mistakes.end(),
      [](const Mistake& a, const Mistake& b) { return a.loss != b.loss ? a.loss > b.loss : a.index < b.index; });
  mistakes.resize(kept);
  for (Mistake& mistake : mistakes) {
    mistake.image = {dataset.height(), dataset.width(), dataset.channels(),
                     dataset.images().narrow(mistake.index, 1).to_vector<std::uint8_t>()};
  }
  return mistakes;
}

}  // namespace heddle::tools
