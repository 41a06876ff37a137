// The head of a training step: a batch of resident uint8 images in one kernel. Used through CudaBackend.
#include "kernels/launch/gather_images.h"

#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/int_size.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {

static_assert(kCursorPosition == cursor_slot::kPosition && kCursorEpoch == cursor_slot::kEpoch &&
              kCursorTicket == cursor_slot::kTicket && kCursorCount == cursor_slot::kCount &&
              kGatherMaxChannels == GatherImagesParams::kMaxChannels);

void CudaBackend::gather_images(const Tensor& images, const Tensor& labels, const Tensor& order, Tensor& cursor,
                                const GatherImagesParams& params, Tensor& y, Tensor& batch_labels) {
  int_size("gather_images", y.dim(1) * y.dim(2) * y.dim(3));
  GatherSettings settings{.count = images.dim(0),
                          .batch = y.dim(0),
                          .first = params.first,
                          .advance = params.total > 0 ? params.total : y.dim(0),
                          .seed = params.seed,
                          .height = static_cast<int>(y.dim(1)),
                          .width = static_cast<int>(y.dim(2)),
                          .channels = static_cast<int>(y.dim(3)),
                          .random_crop = static_cast<int>(params.random_crop),
                          .random_flip = params.random_flip,
                          .augmented = params.random_flip || params.random_crop > 0};
  std::copy(params.scale.begin(), params.scale.end(), settings.scale);
  std::copy(params.shift.begin(), params.shift.end(), settings.shift);
  visit_floats("gather_images", y.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::gather_images<T>({.images = data_of<std::uint8_t>(images),
                            .labels = data_of<std::uint8_t>(labels),
                            .order = data_of<std::int32_t>(order),
                            .cursor = data_of<std::int64_t>(cursor),
                            .y = data_of<T>(y),
                            .batch_labels = data_of<std::int64_t>(batch_labels)},
                           settings, stream());
  });
}

}  // namespace heddle::cuda
