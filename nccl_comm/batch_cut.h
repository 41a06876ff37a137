// How a training cuts each batch into the passes that its layers see: what matters to layers that need more than one
// image, such as batch norm in training. Used by trainers; knows no model.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::comm {

struct BatchCut {
  int shares = 1;             // ranks, or micro-shards; as equal as can be
  std::int64_t pieces = 1;    // of each share, one after the other; fewer if a share has fewer images
  bool synchronised = false;  // the passes of all shares are one, as a synchronised batch norm sees them
};

// Pieces of every share with a synchronised batch norm, where all ranks have as many, some of them empty.
std::int64_t synchronised_pieces(std::int64_t images, const BatchCut& cut);

// Images of each pass of a batch; those without images are left out.
std::vector<std::int64_t> pass_sizes(std::int64_t images, const BatchCut& cut);

// Whether a pass of one image is among those of an epoch: of a full batch or of the last one.
bool has_pass_of_one(std::int64_t batch_size, std::int64_t dataset_size, const BatchCut& cut);

// The batch sizes next to this one, below (0: none) and above (0: none up to the data set's size), that give none.
struct NearestBatchSizes {
  std::int64_t below = 0, above = 0;
};
NearestBatchSizes batch_sizes_without_pass_of_one(std::int64_t batch_size, std::int64_t dataset_size,
                                                  const BatchCut& cut);

}  // namespace heddle::comm
