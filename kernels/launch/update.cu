#include "kernels/device/update.cuh"

#include <algorithm>

#include "kernels/launch/launch.h"
#include "kernels/launch/update.h"

namespace heddle::cuda {
namespace {

// Enough threads for every GPU that there is, few enough that their tickets cost nothing beside the memory.
constexpr std::int64_t kMaxBlocks = 2048;

// Ranges of one flat buffer: up to the end of the last one, since the kernel is given where the buffer begins. A step
// that is skipped writes nothing.
template <class Settings, class T>
Access access_of(const UpdateRanges<Settings>& ranges, T* data, bool read, bool written) {
  std::int64_t end = 0, before = 0;
  for (int r = 0; r < ranges.count; ++r) {
    end = std::max(end, ranges.at[r].first_pack + ranges.at[r].end_index - before);
    before = ranges.at[r].end_index;
  }
  return {data,
          static_cast<std::size_t>(4 * end) * sizeof(T),
          read,
          written,
          static_cast<std::size_t>(4 * (end - before)) * sizeof(T),
          true};
}

}  // namespace

template <class Settings>
void update(const UpdateBuffers& b, const UpdateRanges<Settings>& ranges, cudaStream_t stream) {
  launch("update", update_kernel<Settings>, cover(ranges.packs, kUpdateThreads, 1, kMaxBlocks), stream,
         {access_of(ranges, b.weights, true, true), access_of(ranges, b.gradients, true, false),
          access_of(ranges, b.first_state, true, true), access_of(ranges, b.second_state, true, true),
          access_of(ranges, b.bf16_weights, false, true), access_of(ranges, b.averages, true, true),
          reads(b.tail, kTailCount), reads(b.scalars, kScalarCount), updates(b.counters, kCounterCount),
          reads(b.learning_rates, b.rate_count), writes_some(b.records, kUpdateRecords, 1)},
         b, ranges);
}

template void update(const UpdateBuffers&, const UpdateRanges<SgdSettings>&, cudaStream_t);
template void update(const UpdateBuffers&, const UpdateRanges<AdamSettings>&, cudaStream_t);

int gradient_norm_blocks(std::int64_t count) {
  return static_cast<int>(cover(count / 4, kUpdateThreads, 4, kUpdateThreads).grid.x);
}

void gradient_norm(const NormBuffers& b, std::int64_t count, cudaStream_t stream) {
  const LaunchShape shape = cover(count / 4, kUpdateThreads, 4, kUpdateThreads);
  launch("gradient_norm", gradient_norm_kernel, shape, stream,
         {reads(b.gradients, count), reads(b.tail, kTailCount), updates(b.partials, gradient_norm_blocks(count)),
          updates(b.counters, kCounterCount), writes(b.scalars, kScalarSkip + 1)},
         b, count / 4);
}

}  // namespace heddle::cuda
