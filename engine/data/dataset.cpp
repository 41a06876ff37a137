#include "engine/data/dataset.h"

#include <algorithm>
#include <limits>

namespace heddle::data {

ResidentDataset::ResidentDataset(const std::vector<std::uint8_t>& images, const std::vector<std::uint8_t>& labels,
                                 std::int64_t height, std::int64_t width, std::int64_t channels,
                                 std::int64_t num_classes, Device device)
    : num_classes_(num_classes) {
  HEDDLE_CHECK(height >= 1 && width >= 1 && channels >= 1, "data set: images of size (", height, ",", width, ",",
               channels, ")");
  HEDDLE_CHECK(num_classes >= 1 && num_classes <= 256, "data set: ", num_classes,
               " classes, labels of one byte have 1 to 256");
  HEDDLE_CHECK(!labels.empty(), "data set: it has no images");
  HEDDLE_CHECK(labels.size() <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
               "data set: ", labels.size(), " images, at most 2^31-1 are possible");
  const auto count = static_cast<std::int64_t>(labels.size());
  const Shape shape{count, height, width, channels};
  HEDDLE_CHECK(images.size() == static_cast<std::size_t>(shape.numel()), "data set: ", count, " labels and shape ",
               shape, " need ", shape.numel(), " bytes of images, got ", images.size());
  const auto bad = std::find_if(labels.begin(), labels.end(), [&](std::uint8_t label) { return label >= num_classes; });
  HEDDLE_CHECK(bad == labels.end(), "data set: label ", int{*bad}, " of image ", bad - labels.begin(), " is not below ",
               num_classes, ", the number of classes");
  images_ = Tensor::from_values(images, shape, device);
  labels_ = Tensor::from_values(labels, {count}, device);
}

}  // namespace heddle::data
