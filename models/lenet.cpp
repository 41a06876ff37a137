#include "models/lenet.h"

#include "engine/nn/activation.h"
#include "engine/nn/conv2d.h"
#include "engine/nn/flatten.h"
#include "engine/nn/linear.h"
#include "engine/nn/pooling.h"
#include "engine/nn/sequential.h"

namespace heddle::models {
namespace {

constexpr std::int64_t kPool = 2;

// Columns of the first linear layer: what is left of the image after two convolutions and two poolings by 2, times the
// channels there.
std::int64_t flat_features(const char* model, const ModelOptions& options, std::int64_t first_kernel,
                           std::int64_t second_kernel, std::int64_t channels) {
  const auto left = [&](std::int64_t size) { return ((size - first_kernel + 1) / kPool - second_kernel + 1) / kPool; };
  // The least size that leaves one pixel.
  const std::int64_t least = (kPool + second_kernel - 1) * kPool + first_kernel - 1;
  HEDDLE_CHECK(options.height >= least && options.width >= least, "model ", model, ": images of ", options.height, "x",
               options.width, " are too small, it needs at least ", least, "x", least);
  return left(options.height) * left(options.width) * channels;
}

template <class M, class... Args>
std::shared_ptr<nn::Module> layer(Args&&... args) {
  return std::make_shared<M>(std::forward<Args>(args)...);
}

std::shared_ptr<nn::Module> conv(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size) {
  return layer<nn::Conv2d>(in_channels, out_channels, nn::Conv2dOptions{.kernel_size = kernel_size});
}

}  // namespace

std::shared_ptr<nn::Module> make_lenet(const ModelOptions& options) {
  const std::int64_t features = flat_features("lenet", options, 5, 5, 16);
  const nn::Pool2dOptions pool{.kernel_size = kPool};
  return std::make_shared<nn::Sequential>(
      std::vector<std::shared_ptr<nn::Module>>{
          conv(options.in_channels, 6, 5),
          layer<nn::ReLU>(),
          layer<nn::MaxPool2d>(pool),
          conv(6, 16, 5),
          layer<nn::ReLU>(),
          layer<nn::MaxPool2d>(pool),
          layer<nn::Flatten>(),
          layer<nn::Linear>(features, 120),
          layer<nn::ReLU>(),
          layer<nn::Linear>(120, 84),
          layer<nn::ReLU>(),
          layer<nn::Linear>(84, options.num_classes),
      },
      options.in_channels);
}

std::shared_ptr<nn::Module> make_lenet_d2l(const ModelOptions& options) {
  const std::int64_t features = flat_features("lenet-d2l", options, 3, 5, 50);
  const nn::Pool2dOptions pool{.kernel_size = kPool};
  return std::make_shared<nn::Sequential>(
      std::vector<std::shared_ptr<nn::Module>>{
          conv(options.in_channels, 20, 3),
          layer<nn::ReLU>(),
          layer<nn::AvgPool2d>(pool),
          conv(20, 50, 5),
          layer<nn::ReLU>(),
          layer<nn::AvgPool2d>(pool),
          layer<nn::Flatten>(),
          layer<nn::Linear>(features, 128),
          layer<nn::ReLU>(),
          layer<nn::Linear>(128, options.num_classes),
      },
      options.in_channels);
}

}  // namespace heddle::models
