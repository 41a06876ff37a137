// The batch at the head of a step against the reference, on every device.
#include "engine/backend/backend.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;

namespace {

Array cursor_of(std::int64_t position, std::int64_t epoch) {
  Array cursor({cursor_slot::kCount});
  cursor[cursor_slot::kPosition] = static_cast<double>(position);
  cursor[cursor_slot::kEpoch] = static_cast<double>(epoch);
  return cursor;
}

struct Row {
  Shape images;
  std::int64_t begin, n;
  // A rank's part.
  std::int64_t first = 0, total = 0;
};
const Row kRows[] = {{{20, 28, 28, 1}, 3, 9},       {{7, 5, 9, 3}, 0, 7},          {{7, 6, 5, 4}, 2, 0},
                     {{300, 28, 28, 1}, 100, 130},  {{20, 28, 28, 1}, 3, 4, 5, 9}, {{7, 6, 5, 4}, 2, 0, 3, 3},
                     {{30, 8, 8, 1}, 10, 15, 0, 20}};

}  // namespace

TEST_CASE("batches agree with the reference, augmented or not") {
  for (const Row& row : kRows) {
    for (const bool flip : {false, true}) {
      for (const std::int64_t crop : {0, 2, 4}) {
        const GatherImagesParams params{.scale = {1.f / 255, 0.5f, 2.f, 0.01f},
                                        .shift = {-0.25f, 0.5f, 0, 3.f},
                                        .random_flip = flip,
                                        .random_crop = crop,
                                        .seed = 99,
                                        .first = row.first,
                                        .total = row.total};
        const std::int64_t count = row.images[0];
        expect_parity_everywhere(
            {.name = join_text("gather_images ", row.images, " first ", row.first, " flip ", flip, " crop ", crop),
             .inputs = {integer_input(row.images, DType::u8, 0, 255), integer_input({count}, DType::u8, 0, 255),
                        integer_input({count}, DType::i32, 0, count - 1)},
             .outputs = {{{row.n, row.images[1], row.images[2], row.images[3]}},
                         {{row.n}, DType::i64},
                         {{cursor_slot::kCount}, DType::i64, cursor_of(row.begin, 12)}},
             .call =
                 [&](auto& in, auto& out, WriteMode) {
                   backend_of(out).gather_images(in[0], in[1], in[2], out[2], params, out[0], out[1]);
                 },
             .reference =
                 [&](const Arrays& in) {
                   auto batch = reference::gather_images(in[0], in[1], in[2], in[3], row.n, params);
                   return Arrays{batch.images, batch.labels,
                                 cursor_of(row.begin + (row.total > 0 ? row.total : row.n), 12)};
                 },
             .dtypes = {DType::f32, DType::f64, DType::bf16}});
      }
    }
  }
}

TEST_CASE("an image is augmented alike in every batch, and otherwise in another epoch") {
  for (const Device device : test_devices()) {
    const Tensor images = tensor_of(integer_array({64, 8, 8, 1}, 1, 255), DType::u8, device),
                 labels = Tensor::zeros({64}, DType::u8, device);
    const Tensor order = tensor_of(counting_array({64}), DType::i32, device);
    const GatherImagesParams params{.random_flip = true, .random_crop = 2, .seed = 4};
    const auto batch = [&](std::int64_t begin, std::int64_t n, std::int64_t epoch) {
      Tensor cursor = tensor_of(cursor_of(begin, epoch), DType::i64, device);
      Tensor y = Tensor::empty({n, 8, 8, 1}, DType::f32, device), batch_labels = Tensor::empty({n}, DType::i64, device);
      backend_for(device).gather_images(images, labels, order, cursor, params, y, batch_labels);
      return y.to_vector<float>();
    };
    const std::vector<float> all = batch(0, 64, 1), part = batch(17, 5, 1);
    CHECK(std::equal(part.begin(), part.end(), all.begin() + 17 * 64));
    const std::vector<float> other = batch(0, 64, 2);
    int same = 0;
    for (std::ptrdiff_t i = 0; i < 64; ++i) {
      same += std::equal(all.begin() + i * 64, all.begin() + (i + 1) * 64, other.begin() + i * 64) ? 1 : 0;
    }
    // One in fifty combinations of flip and shift repeats by chance.
    CHECK(same < 10);
  }
}
