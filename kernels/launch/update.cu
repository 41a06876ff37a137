#include "kernels/device/update.cuh"

#include <array>

#include "kernels/launch/launch.h"
#include "kernels/launch/update.h"

namespace heddle::cuda {
namespace {

// Enough threads for every GPU that there is, few enough that their tickets cost nothing beside the memory.
constexpr std::int64_t kMaxBlocks = 2048;

// The ranges of one flat buffer.
template <class Settings, class T>
class RangeAccess {
 public:
  RangeAccess(const UpdateRanges<Settings>& ranges, T* data, bool read, bool written) {
    if (data == nullptr) return;
    std::int64_t before = 0;
    for (int r = 0; r < ranges.count; ++r) {
      const auto packs = static_cast<std::size_t>(ranges.at[r].end_index - before);
      before = ranges.at[r].end_index;
      list_[static_cast<std::size_t>(count_++)] = {data + 4 * ranges.at[r].first_pack, packs * 4 * sizeof(T), read,
                                                   written};
    }
  }
  const Access* begin() const { return list_.data(); }
  const Access* end() const { return list_.data() + count_; }

 private:
  std::array<Access, kMaxRanges> list_;
  int count_ = 0;
};

}  // namespace

template <class Settings>
void update(const UpdateBuffers& b, const UpdateRanges<Settings>& ranges, cudaStream_t stream) {
  std::array<Access, 5 * kMaxRanges + 5> accesses;
  auto end = accesses.begin();
  const auto add = [&](const auto& list) { end = std::copy(list.begin(), list.end(), end); };
  add(RangeAccess(ranges, b.weights, true, true));
  add(RangeAccess(ranges, b.gradients, true, false));
  add(RangeAccess(ranges, b.first_state, true, true));
  add(RangeAccess(ranges, b.second_state, true, true));
  add(RangeAccess(ranges, b.bf16_weights, false, true));
  *end++ = reads(b.tail, kTailCount);
  *end++ = reads(b.scalars, kScalarCount);
  *end++ = updates(b.counters, kCounterCount);
  *end++ = reads(b.learning_rates, b.rate_count);
  *end++ = writes(b.records, kUpdateRecords);
  launch("update", update_kernel<Settings>, cover(ranges.packs, kUpdateThreads, 1, kMaxBlocks), stream,
         std::span<const Access>(accesses.begin(), end), b, ranges);
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
          updates(b.counters, kCounterCount), writes(b.scalars, kScalarCount)},
         b, count / 4);
}

}  // namespace heddle::cuda
