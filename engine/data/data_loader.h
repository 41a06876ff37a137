// Batches from a resident data set: shuffled by (seed, epoch), gathered, augmented and normalised in one pass.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "../backend/op_params.h"
#include "dataset.h"

namespace heddle::data {

// images f32 (B,H,W,C), labels i64 (B).
struct Batch {
  Tensor images;
  Tensor labels;
  std::int64_t size() const { return images.dim(0); }
};

struct DataLoaderOptions {
  // Of all ranks together.
  std::int64_t batch_size = 256;
  bool shuffle = true;
  bool drop_last = false;  // false: the last, smaller batch is used too
  std::uint64_t seed = 0;
  bool random_flip = false;
  std::int64_t random_crop = 0;
  // y = (value / 255 - mean[c]) / stddev[c]
  std::array<float, GatherImagesParams::kMaxChannels> mean{};
  std::array<float, GatherImagesParams::kMaxChannels> stddev{1.f, 1.f, 1.f, 1.f};
  // This loader hands out the rank's share of each batch: the batches of world_size loaders put together are those of
  // one. Shares differ by one image at most, lower ranks have the larger ones, and a share may be empty.
  int rank = 0;
  int world_size = 1;
};

class DataLoader {
 public:
  // The data set must outlive the loader. Throws: InvalidArgument on options out of range.
  DataLoader(const ResidentDataset& dataset, const DataLoaderOptions& options);
  // Hands out another share of the batches of `leader`, from its place on: they have one order, which is the leader's
  // to shuffle. When the leader has moved, call follow(). Throws: InvalidArgument unless 0 <= rank < world_size.
  DataLoader(const DataLoader& leader, int rank, int world_size);

  // Starts an epoch: a new order from (seed, epoch), or file order without shuffle. Copies it to the device.
  void start_epoch(std::int64_t epoch);
  // The share of the next batch, or nothing at the end of the epoch. The tensors of a batch are fresh memory. It is
  // load() and advance() of next_size() images.
  std::optional<Batch> next();
  // Starts the same epoch again, in the same order; queued, without a copy from the host.
  void rewind();
  // Skips batches without computing them, to resume inside an epoch.
  void skip(std::int64_t batches);
  // Goes to the leader's epoch and place, by its count on the host; copies both to the device. Not for a leader.
  void follow(const DataLoader& leader);

  // For steps that are recorded: the size of the next batch is decided on the host (0 at the end of the epoch), the
  // step queues load(), which finds its place on the device and changes nothing on the host, and after each run of the
  // step the host counts it with advance(). All three count the images of all ranks; load() returns the share_of() them
  // that is this rank's.
  // load() throws InvalidArgument if there are not that many images from position() on; so does advance().
  std::int64_t next_size() const;
  Batch load(std::int64_t images);
  void advance(std::int64_t images);
  std::int64_t share_of(std::int64_t images) const noexcept;
  // Number of the share's first image in a batch of `images`.
  std::int64_t share_begin(std::int64_t images) const noexcept;

  std::int64_t batches_per_epoch() const;
  std::int64_t dataset_size() const { return dataset_.size(); }
  const ResidentDataset& dataset() const noexcept { return dataset_; }
  const DataLoaderOptions& options() const noexcept { return options_; }
  std::int64_t position() const noexcept { return position_; }  // images handed out in this epoch, by all ranks
  const Tensor& order() const noexcept { return order_; }       // i32 (M), on the data set's device

 private:
  const ResidentDataset& dataset_;
  DataLoaderOptions options_;
  GatherImagesParams gather_;
  void write_cursor();
  void check_left(const char* call, std::int64_t images) const;

  Tensor order_;
  Tensor cursor_;  // i64 (cursor_slot::kCount), on the data set's device
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace heddle::data
