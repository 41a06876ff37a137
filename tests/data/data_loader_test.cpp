// Order, coverage, labels and normalisation of batches, and what a batch costs in memory.
#include "engine/data/data_loader.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "engine/device/caching_allocator.h"
#include "engine/device/device_runtime.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::data;

namespace {

// Image i is 2x2 with all values i, label i % 10.
ResidentDataset make_dataset(std::int64_t count, std::int64_t channels = 1) {
  std::vector<std::uint8_t> images, labels;
  for (std::int64_t i = 0; i < count; ++i) {
    images.insert(images.end(), static_cast<std::size_t>(4 * channels), static_cast<std::uint8_t>(i));
    labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return {images, labels, 2, 2, channels, 10, Device::cpu()};
}

std::vector<std::int32_t> order_of(DataLoader& loader, std::int64_t epoch) {
  loader.start_epoch(epoch);
  return loader.order().to_vector<std::int32_t>();
}

// The images (by number) that one epoch hands out.
std::vector<std::int64_t> images_of_epoch(DataLoader& loader, std::int64_t epoch) {
  std::vector<std::int64_t> seen;
  loader.start_epoch(epoch);
  while (const auto batch = loader.next()) {
    const std::vector<float> pixels = batch->images.to_vector<float>();
    const std::vector<std::int64_t> labels = batch->labels.to_vector<std::int64_t>();
    for (std::size_t j = 0; j < labels.size(); ++j) {
      seen.push_back(std::lround(pixels[j * 4] * 255));
      CHECK(labels[j] == seen.back() % 10);
    }
  }
  return seen;
}

}  // namespace

TEST_CASE("an epoch's order depends on seed and epoch only") {
  const ResidentDataset dataset = make_dataset(100);
  DataLoader a(dataset, {.seed = 3}), b(dataset, {.seed = 3}), other(dataset, {.seed = 4});
  const auto first = order_of(a, 0);
  order_of(a, 1);
  CHECK(order_of(a, 2) == order_of(b, 2));
  CHECK(order_of(a, 0) == first);
  CHECK(order_of(a, 1) != first);
  CHECK(order_of(other, 0) != first);
  std::vector<std::int32_t> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int32_t> all(100);
  std::iota(all.begin(), all.end(), 0);
  CHECK(sorted == all);
  CHECK(first != all);
}

TEST_CASE("all permutations of three images come up about equally often") {
  const ResidentDataset dataset = make_dataset(3);
  DataLoader loader(dataset, {.seed = 1});
  std::vector<int> counts(27, 0);
  for (int epoch = 0; epoch < 6000; ++epoch) {
    const auto o = order_of(loader, epoch);
    ++counts[static_cast<std::size_t>(o[0] * 9 + o[1] * 3 + o[2])];
  }
  // Expected 1000 each, deviation sqrt(6000 (1/6)(5/6)) = 29; five of them.
  int found = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++found;
    CHECK(std::abs(count - 1000) < 145);
  }
  CHECK(found == 6);
}

TEST_CASE("an epoch hands out every image once, the last batch smaller") {
  const ResidentDataset dataset = make_dataset(97);
  DataLoader loader(dataset, {.batch_size = 16, .seed = 5});
  CHECK(loader.batches_per_epoch() == 7);
  auto seen = images_of_epoch(loader, 0);
  CHECK(loader.position() == 97);
  CHECK_FALSE(loader.next().has_value());
  REQUIRE(seen.size() == 97);
  std::sort(seen.begin(), seen.end());
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<std::int64_t>(i));

  DataLoader dropping(dataset, {.batch_size = 16, .drop_last = true});
  CHECK(dropping.batches_per_epoch() == 6);
  CHECK(images_of_epoch(dropping, 0).size() == 96);
}

TEST_CASE("without shuffle the order is the file's") {
  const ResidentDataset dataset = make_dataset(20);
  DataLoader loader(dataset, {.batch_size = 7, .shuffle = false});
  const auto seen = images_of_epoch(loader, 3);
  for (std::size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == static_cast<std::int64_t>(i));
}

TEST_CASE("skip resumes inside an epoch at the same images") {
  const ResidentDataset dataset = make_dataset(50);
  DataLoader whole(dataset, {.batch_size = 8, .seed = 9}), resumed(dataset, {.batch_size = 8, .seed = 9});
  whole.start_epoch(4);
  for (int i = 0; i < 3; ++i) whole.next();
  resumed.start_epoch(4);
  resumed.skip(3);
  CHECK(resumed.position() == 24);
  CHECK(whole.next()->images.to_vector<float>() == resumed.next()->images.to_vector<float>());
  CHECK_THROWS_AS(resumed.skip(8), InvalidArgument);
}

TEST_CASE("no more images are loaded or counted than the epoch has left") {
  const ResidentDataset set = make_dataset(10);
  DataLoader loader(set, {.batch_size = 3});
  CHECK_THROWS_WITH(loader.load(set.size() + 1), Catch::Contains("load(") && Catch::Contains("at image 0 of"));
  CHECK_THROWS_AS(loader.load(-1), InvalidArgument);
  CHECK_THROWS_AS(loader.advance(-1), InvalidArgument);
  CHECK_THROWS_AS(loader.advance(set.size() + 1), InvalidArgument);
  loader.advance(set.size());
  CHECK_THROWS_WITH(loader.load(1), Catch::Contains("load(1)"));
  CHECK_FALSE(loader.next());
}

TEST_CASE("rewind starts the same epoch again, in its order and with its augmentation") {
  const ResidentDataset dataset = make_dataset(23);
  DataLoader loader(dataset, {.batch_size = 5, .seed = 5, .random_flip = true, .random_crop = 1});
  const auto epoch_of = [&] {
    std::vector<float> pixels;
    while (const auto batch = loader.next()) {
      const std::vector<float> more = batch->images.to_vector<float>();
      pixels.insert(pixels.end(), more.begin(), more.end());
    }
    return pixels;
  };
  loader.start_epoch(3);
  const std::vector<float> whole = epoch_of();
  loader.rewind();
  CHECK(loader.position() == 0);
  CHECK(epoch_of() == whole);
  // Also from the middle.
  loader.rewind();
  loader.next();
  loader.rewind();
  CHECK(epoch_of() == whole);
}

TEST_CASE("images are normalised per channel") {
  const ResidentDataset dataset = make_dataset(256, 3);
  DataLoader loader(dataset,
                    {.batch_size = 256, .shuffle = false, .mean = {0.5f, 0.25f, 0.f}, .stddev = {0.5f, 0.125f, 2.f}});
  const auto batch = loader.next();
  REQUIRE(batch.has_value());
  CHECK(batch->images.shape() == Shape{256, 2, 2, 3});
  const std::vector<float> x = batch->images.to_vector<float>();
  for (const int i : {0, 51, 255}) {
    const auto at = static_cast<std::size_t>(i) * 12;
    CHECK(x[at] == Approx((i / 255.0 - 0.5) / 0.5).margin(1e-6));
    CHECK(x[at + 1] == Approx((i / 255.0 - 0.25) / 0.125).margin(1e-6));
    CHECK(x[at + 2] == Approx(i / 255.0 / 2.0).margin(1e-6));
  }
}

TEST_CASE("batches reuse memory: from the second on the device is asked for nothing") {
  const ResidentDataset dataset = make_dataset(200);
  DataLoader loader(dataset, {.batch_size = 32});
  for (int i = 0; i < 2; ++i) loader.next();
  const AllocatorStats before = allocator_for(Device::cpu()).stats();
  for (int epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    while (loader.next()) {
    }
  }
  const AllocatorStats after = allocator_for(Device::cpu()).stats();
  CHECK(after.device_allocations == before.device_allocations);
  CHECK(after.reserved_nbytes == before.reserved_nbytes);
  CHECK(after.in_use_nbytes == before.in_use_nbytes);
}

TEST_CASE("data sets that do not hold together are refused with both sides") {
  const std::vector<std::uint8_t> images(8, 0), labels{0, 9};
  CHECK_THROWS_WITH(ResidentDataset(images, labels, 2, 3, 1, 10, Device::cpu()),
                    Catch::Contains("12") && Catch::Contains("8"));
  CHECK_THROWS_WITH(ResidentDataset(images, labels, 2, 2, 1, 9, Device::cpu()),
                    Catch::Contains("label 9") && Catch::Contains("image 1"));
  CHECK_THROWS_AS(ResidentDataset({}, {}, 2, 2, 1, 9, Device::cpu()), InvalidArgument);
  const ResidentDataset dataset = make_dataset(10);
  CHECK_THROWS_AS(DataLoader(dataset, {.batch_size = 0}), InvalidArgument);
  CHECK_THROWS_AS(DataLoader(dataset, {.batch_size = 11, .drop_last = true}), InvalidArgument);
  CHECK_THROWS_AS(DataLoader(dataset, {.random_crop = 2}), InvalidArgument);
  CHECK_THROWS_AS(DataLoader(dataset, {.stddev = {0.f, 1.f, 1.f, 1.f}}), InvalidArgument);
}

TEST_CASE("the shares of the ranks put together are the batches of one loader") {
  const ResidentDataset dataset = make_dataset(97);
  for (const int ranks : {2, 3, 4, 8}) {
    for (const std::int64_t batch_size : {16, 97, 2, 1}) {
      CAPTURE(ranks, batch_size);
      DataLoader whole(dataset, {.batch_size = batch_size, .seed = 5, .random_flip = true});
      std::vector<DataLoader> shares;
      for (int rank = 0; rank < ranks; ++rank) {
        shares.emplace_back(
            dataset, DataLoaderOptions{
                         .batch_size = batch_size, .seed = 5, .random_flip = true, .rank = rank, .world_size = ranks});
      }
      for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
        whole.start_epoch(epoch);
        for (DataLoader& share : shares) share.start_epoch(epoch);
        while (const auto batch = whole.next()) {
          std::vector<float> images;
          std::vector<std::int64_t> labels;
          std::int64_t smallest = batch_size, largest = 0;
          for (DataLoader& share : shares) {
            const auto part = share.next();
            REQUIRE(part.has_value());
            const std::vector<float> pixels = part->images.to_vector<float>();
            const std::vector<std::int64_t> numbers = part->labels.to_vector<std::int64_t>();
            images.insert(images.end(), pixels.begin(), pixels.end());
            labels.insert(labels.end(), numbers.begin(), numbers.end());
            smallest = std::min(smallest, part->size());
            largest = std::max(largest, part->size());
            REQUIRE(share.position() == whole.position());
          }
          REQUIRE(images == batch->images.to_vector<float>());
          REQUIRE(labels == batch->labels.to_vector<std::int64_t>());
          REQUIRE(largest - smallest <= 1);
        }
        for (DataLoader& share : shares) REQUIRE_FALSE(share.next().has_value());
      }
    }
  }
  CHECK_THROWS_AS(DataLoader(dataset, {.rank = 2, .world_size = 2}), InvalidArgument);
  CHECK_THROWS_AS(DataLoader(dataset, {.rank = 0, .world_size = 0}), InvalidArgument);
}

TEST_CASE("loaders that follow another one hand out shares of its batches, in its order") {
  const ResidentDataset dataset = make_dataset(97);
  const DataLoaderOptions options{.batch_size = 16, .seed = 5, .random_flip = true};
  DataLoader leader(dataset, options), whole(dataset, options);
  leader.skip(2);
  std::vector<DataLoader> shares;
  for (int number = 0; number < 8; ++number) shares.emplace_back(leader, number, 8);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    if (epoch > 0) {
      leader.start_epoch(epoch);
      for (DataLoader& share : shares) share.follow(leader);
    }
    whole.start_epoch(epoch);
    if (epoch == 0) whole.skip(2);
    while (const auto batch = whole.next()) {
      std::vector<float> images;
      for (DataLoader& share : shares) {
        CHECK(share.order().same_memory(leader.order()));
        const std::vector<float> pixels = share.load(batch->size()).images.to_vector<float>();
        images.insert(images.end(), pixels.begin(), pixels.end());
      }
      REQUIRE(images == batch->images.to_vector<float>());
    }
  }
  CHECK_THROWS_AS(shares[0].follow(whole), InvalidArgument);
  CHECK_THROWS_AS(DataLoader(leader, 8, 8), InvalidArgument);
}
