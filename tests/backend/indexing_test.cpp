// Primitives that move elements against the references, on every device.
#include "engine/backend/backend.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;

namespace {

const std::vector<DType> kAll = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8};

}  // namespace

TEST_CASE("permute agrees with the reference") {
  const std::pair<Shape, std::vector<int>> cases[] = {{{}, {}},
                                                      {{5}, {0}},
                                                      {{3, 4}, {1, 0}},
                                                      {{3, 0}, {1, 0}},
                                                      {{1, 7}, {1, 0}},
                                                      {{300, 170}, {1, 0}},
                                                      {{2, 3, 4, 5}, {0, 3, 1, 2}},
                                                      {{2, 3, 4, 5}, {0, 2, 3, 1}},
                                                      {{2, 3, 4, 5}, {3, 2, 1, 0}},
                                                      {{2, 3, 4, 5}, {1, 0, 2, 3}},
                                                      {{33, 17, 18, 5}, {2, 0, 3, 1}},
                                                      {{2, 1, 3, 1, 2, 1, 3, 2}, {7, 6, 5, 4, 3, 2, 1, 0}},
                                                      {{2, 3, 2, 3, 2, 3, 2, 3}, {1, 0, 3, 2, 5, 4, 7, 6}}};
  for (const auto& [shape, order] : cases) {
    const auto& perm = order;  // clang 14 cannot capture a structured binding
    const Shape y = reference::permute(Array(shape), perm).shape;
    expect_parity_everywhere(
        {.name = join_text("permute ", shape, " to ", y),
         .inputs = {random_input(shape, 0, 99)},
         .outputs = {{y}},
         .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).permute(in[0], perm, out[0]); },
         .reference = [&](const Arrays& in) { return Arrays{reference::permute(in[0], perm)}; },
         .dtypes = kAll});
  }
}

TEST_CASE("copy_range copies or adds a part of one dimension") {
  struct Row {
    Shape x, y;
    std::int64_t x_begin, y_begin;
    int dim;
    std::int64_t n;
  };
  const Row rows[] = {{{4}, {6}, 1, 3, 0, 2},       {{3, 4}, {3, 9}, 0, 5, 1, 4},
                      {{3, 4}, {5, 4}, 1, 0, 0, 2}, {{2, 3, 5}, {2, 7, 5}, 0, 4, 1, 3},
                      {{2, 3}, {2, 3}, 0, 0, 1, 0}, {{2, 0}, {2, 3}, 0, 1, 1, 0},
                      {{0, 3}, {0, 5}, 0, 1, 1, 3}, {{40, 300}, {40, 400}, 7, 99, 1, 250}};
  for (const Row& r : rows) {
    for (const WriteMode mode : {WriteMode::store, WriteMode::add}) {
      expect_parity_everywhere({.name = join_text("copy_range ", r.x, " to ", r.y, " dim ", r.dim),
                                .inputs = {random_input(r.x, 0, 9)},
                                .outputs = {{r.y, {}, integer_array(r.y, 0, 50, 8)}},
                                .call =
                                    [&](auto& in, auto& out, WriteMode) {
                                      backend_of(out).copy_range(in[0], r.x_begin, out[0], r.y_begin, r.dim, r.n, mode);
                                    },
                                .reference =
                                    [&](const Arrays& in) {
                                      return Arrays{
                                          reference::copy_range(in[0], r.x_begin, in[1], r.y_begin, r.dim, r.n, mode)};
                                    },
                                .dtypes = kAll});
    }
  }
}

TEST_CASE("index_select and index_add take repeated rows") {
  const std::pair<Shape, std::int64_t> cases[] = {{{5}, 7}, {{3, 4}, 0}, {{4, 3, 2}, 9}, {{3, 0}, 2}, {{90, 333}, 120}};
  for (const auto& [shape, n] : cases) {
    std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
    dims[0] = n;
    const Shape rows(dims);
    const ParityInput index = integer_input({n}, DType::i64, 0, shape[0] - 1);
    expect_parity_everywhere(
        {.name = join_text("index_select ", shape, " to ", rows),
         .inputs = {random_input(shape, 0, 9), index},
         .outputs = {{rows}},
         .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).index_select(in[0], in[1], out[0]); },
         .reference = [&](const Arrays& in) { return Arrays{reference::index_select(in[0], in[1])}; },
         .dtypes = kAll});
    // Whole numbers: sums of bf16 and u8 are exact.
    expect_parity_everywhere(
        {.name = join_text("index_add ", rows, " to ", shape),
         .inputs = {exact_input(integer_array(rows, 0, 3, 6)), index},
         .outputs = {{shape, {}, integer_array(shape, 0, 9, 7)}},
         .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).index_add(in[0], in[1], out[0]); },
         .reference = [&](const Arrays& in) { return Arrays{reference::index_add(in[0], in[1], in[2])}; },
         .dtypes = kAll});
  }
}

TEST_CASE("gather and scatter_add follow the index along one dimension") {
  struct Row {
    Shape x;  // the indexed side
    int dim;
    std::int64_t n;
  };
  const Row cases[] = {{{5}, 0, 3},       {{3, 4}, 1, 1}, {{3, 4}, 0, 6},        {{2, 3, 4}, 1, 5},
                       {{2, 3, 4}, 2, 0}, {{0, 3}, 1, 2}, {{300, 10, 17}, 1, 4}, {{256, 10}, 1, 1}};
  for (const Row& r : cases) {
    std::vector<std::int64_t> dims(r.x.dims().begin(), r.x.dims().end());
    dims[static_cast<std::size_t>(r.dim)] = r.n;
    const Shape y(dims);
    const ParityInput index = integer_input(y, DType::i64, 0, r.x[r.dim] - 1);
    expect_parity_everywhere(
        {.name = join_text("gather ", r.x, " dim ", r.dim),
         .inputs = {random_input(r.x, 0, 9), index},
         .outputs = {{y}},
         .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).gather(in[0], r.dim, in[1], out[0]); },
         .reference = [&](const Arrays& in) { return Arrays{reference::gather(in[0], r.dim, in[1])}; },
         .dtypes = kAll});
    expect_parity_everywhere(
        {.name = join_text("scatter_add to ", r.x, " dim ", r.dim),
         .inputs = {exact_input(integer_array(y, 0, 3, 6)), index},
         .outputs = {{r.x, {}, integer_array(r.x, 0, 9, 7)}},
         .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).scatter_add(in[0], r.dim, in[1], out[0]); },
         .reference = [&](const Arrays& in) { return Arrays{reference::scatter_add(in[0], r.dim, in[1], in[2])}; },
         .dtypes = kAll});
  }
}
