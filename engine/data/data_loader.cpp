#include "engine/data/data_loader.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/core/random.h"

namespace heddle::data {
namespace {

// Streams of a seed from here on are orders of epochs; no other user of the seed draws from them.
constexpr std::uint64_t kShuffleStream = std::uint64_t{1} << 40;

void check_share(const DataLoaderOptions& options) {
  HEDDLE_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size, "data loader: rank ",
               options.rank, " of ", options.world_size);
}

GatherImagesParams gather_params(const ResidentDataset& dataset, const DataLoaderOptions& options) {
  HEDDLE_CHECK(options.batch_size >= 1, "data loader: batch size ", options.batch_size, " is not at least 1");
  HEDDLE_CHECK(dataset.channels() <= GatherImagesParams::kMaxChannels, "data loader: images have ", dataset.channels(),
               " channels, at most ", GatherImagesParams::kMaxChannels, " are possible");
  const std::int64_t smallest = std::min(dataset.height(), dataset.width());
  HEDDLE_CHECK(options.random_crop >= 0 && options.random_crop < smallest, "data loader: random crop by up to ",
               options.random_crop, " pixels of images of ", dataset.height(), "x", dataset.width());
  HEDDLE_CHECK(!options.drop_last || options.batch_size <= dataset.size(), "data loader: batch size ",
               options.batch_size, " with drop_last leaves no batch of ", dataset.size(), " images");
  check_share(options);
  GatherImagesParams params;
  for (std::size_t c = 0; c < static_cast<std::size_t>(dataset.channels()); ++c) {
    const double mean = options.mean[c], stddev = options.stddev[c];
    HEDDLE_CHECK(std::isfinite(mean) && std::isfinite(stddev) && stddev > 0, "data loader: channel ", c, " has mean ",
                 mean, " and deviation ", stddev, "; the deviation must be above 0");
    // (value / 255 - mean) / stddev = value * scale + shift
    params.scale[c] = static_cast<float>(1.0 / (255.0 * stddev));
    params.shift[c] = static_cast<float>(-mean / stddev);
  }
  params.random_flip = options.random_flip;
  params.random_crop = options.random_crop;
  params.seed = options.seed;
  return params;
}

}  // namespace

DataLoader::DataLoader(const ResidentDataset& dataset, const DataLoaderOptions& options)
    : dataset_(dataset),
      options_(options),
      gather_(gather_params(dataset, options)),
      order_(Tensor::empty({dataset.size()}, DType::i32, dataset.images().device())),
      cursor_(Tensor::zeros({cursor_slot::kCount}, DType::i64, dataset.images().device())) {
  start_epoch(0);
}

DataLoader::DataLoader(const DataLoader& leader, int rank, int world_size)
    : dataset_(leader.dataset_),
      options_(leader.options_),
      gather_(leader.gather_),
      order_(leader.order_),
      cursor_(Tensor::zeros({cursor_slot::kCount}, DType::i64, leader.cursor_.device())) {
  options_.rank = rank;
  options_.world_size = world_size;
  check_share(options_);
  follow(leader);
}

void DataLoader::follow(const DataLoader& leader) {
  HEDDLE_CHECK(order_.same_memory(leader.order_), "data loader: follow() of a loader with another order of images");
  epoch_ = leader.epoch_;
  position_ = leader.position_;
  write_cursor();
}

void DataLoader::start_epoch(std::int64_t epoch) {
  HEDDLE_CHECK(epoch >= 0, "data loader: epoch ", epoch, " is negative");
  Tensor host = order_.device().is_cpu() ? order_ : Tensor::empty(order_.shape(), DType::i32);
  const std::int64_t count = dataset_.size();
  std::int32_t* const order = host.mutable_host_data<std::int32_t>();
  std::iota(order, order + count, 0);
  if (options_.shuffle) {
    // Fisher-Yates, always from the file's order, so that an epoch does not depend on the ones before.
    Philox random(options_.seed, kShuffleStream + static_cast<std::uint64_t>(epoch));
    for (std::int64_t i = count - 1; i > 0; --i) {
      std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i + 1))]);
    }
  }
  if (!order_.device().is_cpu()) order_.copy_from(host);
  epoch_ = epoch;
  position_ = 0;
  write_cursor();
}

void DataLoader::rewind() {
  Tensor position = cursor_.narrow(cursor_slot::kPosition, 1);
  backend_for(cursor_.device()).fill(position, 0);
  position_ = 0;
}

void DataLoader::write_cursor() {
  std::vector<std::int64_t> values(cursor_slot::kCount, 0);
  values[cursor_slot::kPosition] = position_;
  values[cursor_slot::kEpoch] = epoch_;
  cursor_.copy_from(Tensor::from_values(values, {cursor_slot::kCount}));
}

std::int64_t DataLoader::next_size() const {
  const std::int64_t left = dataset_.size() - position_;
  return options_.drop_last && left < options_.batch_size ? 0 : std::min(left, options_.batch_size);
}

void DataLoader::check_left(const char* call, std::int64_t images) const {
  HEDDLE_CHECK(images >= 0 && images <= dataset_.size() - position_, "data loader: ", call, "(", images, ") at image ",
               position_, " of ", dataset_.size());
}

void DataLoader::advance(std::int64_t images) {
  check_left("advance", images);
  position_ += images;
}

Batch DataLoader::load(std::int64_t images) {
  check_left("load", images);
  const Device device = dataset_.images().device();
  gather_.first = share_begin(images);
  gather_.total = images;
  images = share_of(images);
  Batch batch{Tensor::empty({images, dataset_.height(), dataset_.width(), dataset_.channels()}, DType::f32, device),
              Tensor::empty({images}, DType::i64, device)};
  backend_for(device).gather_images(dataset_.images(), dataset_.labels(), order_, cursor_, gather_, batch.images,
                                    batch.labels);
  return batch;
}

std::int64_t DataLoader::share_of(std::int64_t images) const noexcept {
  return images / options_.world_size + (options_.rank < images % options_.world_size ? 1 : 0);
}

std::int64_t DataLoader::share_begin(std::int64_t images) const noexcept {
  const std::int64_t ranks = options_.world_size, rank = options_.rank;
  return images / ranks * rank + std::min(rank, images % ranks);
}

std::optional<Batch> DataLoader::next() {
  const std::int64_t images = next_size();
  if (images == 0) return std::nullopt;
  Batch batch = load(images);
  advance(images);
  return batch;
}

void DataLoader::skip(std::int64_t batches) {
  HEDDLE_CHECK(batches >= 0 && batches <= batches_per_epoch(), "data loader: skip of ", batches,
               " batches in an epoch of ", batches_per_epoch());
  position_ = std::min(position_ + batches * options_.batch_size, dataset_.size());
  write_cursor();
}

std::int64_t DataLoader::batches_per_epoch() const {
  const std::int64_t rounding = options_.drop_last ? 0 : options_.batch_size - 1;
  return (dataset_.size() + rounding) / options_.batch_size;
}

}  // namespace heddle::data
