#include "nccl_comm/batch_cut.h"

#include <algorithm>

namespace heddle::comm {
namespace {

bool has_one(std::int64_t images, const BatchCut& cut) {
  const std::vector<std::int64_t> sizes = pass_sizes(images, cut);
  return std::find(sizes.begin(), sizes.end(), 1) != sizes.end();
}

}  // namespace

std::int64_t synchronised_pieces(std::int64_t images, const BatchCut& cut) {
  const std::int64_t largest = (images + cut.shares - 1) / cut.shares;
  return std::min(cut.pieces, largest);
}

std::vector<std::int64_t> pass_sizes(std::int64_t images, const BatchCut& cut) {
  const std::int64_t together = synchronised_pieces(images, cut);
  std::vector<std::int64_t> sizes(cut.synchronised ? static_cast<std::size_t>(together) : 0);
  for (std::int64_t i = 0; i < cut.shares; ++i) {
    const std::int64_t share = images / cut.shares + (i < images % cut.shares ? 1 : 0);
    const std::int64_t pieces = cut.synchronised ? together : std::min(cut.pieces, share);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t size = share * (piece + 1) / pieces - share * piece / pieces;
      if (cut.synchronised) {
        sizes[static_cast<std::size_t>(piece)] += size;
      } else {
        sizes.push_back(size);
      }
    }
  }
  sizes.erase(std::remove(sizes.begin(), sizes.end(), 0), sizes.end());
  return sizes;
}

bool has_pass_of_one(std::int64_t batch_size, std::int64_t dataset_size, const BatchCut& cut) {
  const std::int64_t full = std::min(batch_size, dataset_size);
  return has_one(full, cut) || has_one(dataset_size % full, cut);
}

NearestBatchSizes batch_sizes_without_pass_of_one(std::int64_t batch_size, std::int64_t dataset_size,
                                                  const BatchCut& cut) {
  NearestBatchSizes nearest;
  const auto serves = [&](std::int64_t size) { return !has_pass_of_one(size, dataset_size, cut); };
  for (std::int64_t size = std::min(batch_size, dataset_size) - 1; size > 1 && nearest.below == 0; --size) {
    if (serves(size)) nearest.below = size;
  }
  for (std::int64_t size = batch_size + 1; size <= dataset_size && nearest.above == 0; ++size) {
    if (serves(size)) nearest.above = size;
  }
  return nearest;
}

}  // namespace heddle::comm
