#include "kernels/device/update.cuh"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/launch/launch.h"
#include "kernels/launch/update.h"

namespace heddle::cuda {
namespace {

// Enough threads for every GPU that there is, few enough that their tickets cost nothing beside the memory.
constexpr std::int64_t kMaxBlocks = 2048;

// `touched` packs among those of a flat buffer up to `end`: from its beginning, since that is what a kernel is given.
template <class T>
Access part_of(T* data, std::int64_t end, std::int64_t touched, bool read, bool written) {
  return {data,
          static_cast<std::size_t>(4 * end) * sizeof(T),
          read,
          written,
          static_cast<std::size_t>(4 * (end - touched)) * sizeof(T),
          true};
}

// Ranges of one flat buffer. A step that is skipped writes nothing.
template <class Settings, class T>
Access access_of(const UpdateRanges<Settings>& ranges, T* data, bool read, bool written) {
  std::int64_t end = 0, before = 0;
  for (int p = 0; p < ranges.count; ++p) {
    end = std::max(end, ranges.at[p].first_pack + ranges.at[p].end_index - before);
    before = ranges.at[p].end_index;
  }
  return part_of(data, end, before, read, written);
}

// What a kernel reads of the gradients of pieces, and what it writes: those that are known from elsewhere.
std::array<Access, 2> gradient_accesses(float* gradients, std::span<const UpdatePiece> pieces) {
  std::int64_t read_end = 0, read = 0, written_end = 0, written = 0, before = 0;
  for (const UpdatePiece& piece : pieces) {
    const std::int64_t packs = piece.end_index - before;
    before = piece.end_index;
    if (piece.gradient_pack != kZeroGradient) {
      read += packs;
      read_end = std::max(read_end, piece.gradient_pack + packs);
    }
    if (piece.gradient_pack != piece.first_pack) {
      written += packs;
      written_end = std::max(written_end, piece.first_pack + packs);
    }
  }
  return {part_of(gradients, read_end, std::min(read, read_end), true, false),
          part_of(gradients, written_end, written, false, true)};
}

}  // namespace

template <class Settings>
void update(const UpdateBuffers& b, const UpdateRanges<Settings>& ranges, cudaStream_t stream) {
  const auto [read, written] =
      gradient_accesses(b.gradients, std::span(ranges.at).first(static_cast<std::size_t>(ranges.count)));
  launch("update", update_kernel<Settings>, cover(ranges.packs, kUpdateThreads, 1, kMaxBlocks), stream,
         {access_of(ranges, b.weights, true, true), read, written, access_of(ranges, b.first_state, true, true),
          access_of(ranges, b.second_state, true, true), access_of(ranges, b.bf16_weights, false, true),
          access_of(ranges, b.averages, true, true), reads(b.tail, kTailCount), reads(b.scalars, kScalarCount),
          updates(b.counters, kCounterCount), reads(b.learning_rates, b.rate_count),
          writes_some(b.records, kUpdateRecords, 1)},
         b, ranges);
}

template void update(const UpdateBuffers&, const UpdateRanges<SgdSettings>&, cudaStream_t);
template void update(const UpdateBuffers&, const UpdateRanges<AdamSettings>&, cudaStream_t);

void write_gradients(float* gradients, const KnownGradients& known, cudaStream_t stream) {
  const auto [read, written] =
      gradient_accesses(gradients, std::span(known.at).first(static_cast<std::size_t>(known.count)));
  launch("write_gradients", write_gradients_kernel, cover(known.packs, kUpdateThreads, 1, kMaxBlocks), stream,
         {read, written}, gradients, known);
}

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
