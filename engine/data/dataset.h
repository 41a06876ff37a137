// Images in memory as they come from a file, and the same on a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../tensor/tensor.h"

namespace heddle::data {

// Images u8 (M,H,W,C) and labels u8 (M) on a device, ready for DataLoader.
class ResidentDataset {
 public:
  // Copies host values to the device. Throws: InvalidArgument if counts differ, the set is empty, a label is >=
  // num_classes, or there are more than 2^31-1 images.
  ResidentDataset(const std::vector<std::uint8_t>& images, const std::vector<std::uint8_t>& labels, std::int64_t height,
                  std::int64_t width, std::int64_t channels, std::int64_t num_classes, Device device);

  std::int64_t size() const { return images_.dim(0); }
  std::int64_t height() const { return images_.dim(1); }
  std::int64_t width() const { return images_.dim(2); }
  std::int64_t channels() const { return images_.dim(3); }
  std::int64_t num_classes() const noexcept { return num_classes_; }
  const Tensor& images() const noexcept { return images_; }
  const Tensor& labels() const noexcept { return labels_; }

 private:
  Tensor images_, labels_;
  std::int64_t num_classes_;
};

}  // namespace heddle::data
