#include "kernels/device/gather_images.cuh"

#include <algorithm>

#include "kernels/launch/gather_images.h"
#include "kernels/launch/walk.h"

namespace heddle::cuda {

template <class T>
void gather_images(const GatherBuffers<T>& b, const GatherSettings& s, cudaStream_t stream) {
  constexpr int N = static_cast<int>(16 / sizeof(T));
  const std::int64_t numel = std::int64_t{s.height} * s.width * s.channels;
  const bool wide = numel % N == 0 && is_aligned(b.y, 16) && is_aligned(b.images, N);
  const std::int64_t packs = wide ? numel / N : numel;
  // Whole warps.
  const std::int64_t threads = std::min<std::int64_t>(kGatherThreads, (packs + 31) / 32 * 32);
  const LaunchShape shape{dim3(static_cast<unsigned>(s.batch + 1)),
                          dim3(static_cast<unsigned>(std::max<std::int64_t>(threads, 32)))};
  launch("gather_images", wide ? gather_images_kernel<T, N> : gather_images_kernel<T, 1>, shape, stream,
         {reads_some(b.images, s.count * numel, s.batch * numel), reads_some(b.labels, s.count, s.batch),
          reads_some(b.order, s.count, s.batch), updates(b.cursor, kCursorCount), writes(b.y, s.batch * numel),
          writes(b.batch_labels, s.batch)},
         b, s);
}

template void gather_images(const GatherBuffers<float>&, const GatherSettings&, cudaStream_t);
template void gather_images(const GatherBuffers<__nv_bfloat16>&, const GatherSettings&, cudaStream_t);

}  // namespace heddle::cuda
