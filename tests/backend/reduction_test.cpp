// Reductions and argmax against the references, on every device.
#include <cmath>
#include <limits>

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

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("reductions over any dimensions agree with the reference") {
  const std::pair<Shape, std::vector<std::uint32_t>> cases[] = {
      {{}, {0}},
      {{1}, {0, 1}},
      {{129}, {1}},
      {{40003}, {1}},
      {{5, 7}, {0, 1, 2, 3}},
      {{3000, 6}, {1, 2}},
      {{2000, 20}, {1}},
      {{30, 900}, {1, 2, 3}},
      {{7, 1, 5}, {1, 4, 5, 7}},
      {{6, 5, 4, 3}, {1, 2, 5, 6, 7, 8, 9, 10, 13, 14, 15}},
      {{5, 20, 23, 17}, {7, 6, 8, 13}},
      {{2, 3, 2, 3, 2, 1, 2, 3}, {0x55, 0xaa, 0x0f, 0x81}},
      // Few columns of many rows, many narrow ones, long rows.
      {{20000, 6}, {1}},
      {{3, 1000, 16}, {2}},
      {{2, 700, 5}, {2}},
      {{900, 4, 3}, {2}},
      {{3, 9000}, {2}},
      {{2, 600, 300}, {2}}};
  for (const auto& [shape, masks] : cases) {
    for (const std::uint32_t mask : masks) {
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::mean, ReduceKind::max, ReduceKind::min}) {
        std::vector<DType> dtypes = {DType::f32, DType::f64, DType::bf16};
        if (kind != ReduceKind::mean) dtypes.insert(dtypes.end(), {DType::i32, DType::i64});
        expect_parity_everywhere(
            {.name = join_text("reduce ", static_cast<int>(kind), " ", shape, " mask ", mask),
             .inputs = {random_input(shape, -7, 9)},
             .outputs = {{reference::reduce(kind, Array(shape), mask).shape}},
             .call = [&](auto& in, auto& out,
                         WriteMode mode) { backend_of(out).reduce(kind, in[0], mask, out[0], mode); },
             .reference = [&](const Arrays& in) { return Arrays{reference::reduce(kind, in[0], mask)}; },
             .write_modes = true,
             .dtypes = dtypes});
      }
    }
  }
}

TEST_CASE("sums of nothing are zero") {
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{2, 0, 3}}) {
    for (const std::uint32_t mask : {1u, 2u, 3u}) {
      if (mask >> shape.rank() != 0) continue;
      expect_parity_everywhere(
          {.name = join_text("sum ", shape, " mask ", mask),
           .inputs = {random_input(shape)},
           .outputs = {{reference::reduce(ReduceKind::sum, Array(shape), mask).shape}},
           .call = [&](auto& in, auto& out,
                       WriteMode mode) { backend_of(out).reduce(ReduceKind::sum, in[0], mask, out[0], mode); },
           .reference = [&](const Arrays& in) { return Arrays{reference::reduce(ReduceKind::sum, in[0], mask)}; },
           .write_modes = true});
    }
  }
}

TEST_CASE("a long sum of f32 keeps the accuracy of f32") {
  for (const Device device : test_devices()) {
    const std::int64_t n = 10'000'000;
    const Tensor x = Tensor::full({n}, 0.1, DType::f32, device);
    Tensor y = Tensor::empty({}, DType::f32, device);
    backend_for(device).reduce(ReduceKind::sum, x, 1, y, WriteMode::store);
    CHECK(y.item() == Approx(static_cast<double>(0.1f) * static_cast<double>(n)).epsilon(1e-7));
  }
}

TEST_CASE("comparison results are counted in i64") {
  for (const Device device : test_devices()) {
    Backend& backend = backend_for(device);
    Tensor y = Tensor::empty({}, DType::i64, device);
    backend.reduce(ReduceKind::sum, Tensor::full({1000}, 1, DType::u8, device), 1, y, WriteMode::store);
    CHECK(y.item() == 1000);
    CHECK_THROWS_AS(backend.reduce(ReduceKind::mean, y, 0, y, WriteMode::store), NotSupported);
  }
}

TEST_CASE("a NaN wins max, min and argmax") {
  for (const Device device : test_devices()) {
    Backend& backend = backend_for(device);
    for (const std::int64_t at : {0, 3, 200}) {
      Array x = random_array({201, 3});
      x[at * 3 + 1] = kNan;
      const Tensor values = tensor_of(x, DType::f32, device);
      Tensor y = Tensor::empty({3}, DType::f32, device), index = Tensor::empty({3}, DType::i64, device);
      for (const ReduceKind kind : {ReduceKind::max, ReduceKind::min}) {
        backend.reduce(kind, values, 1, y, WriteMode::store);
        CHECK(std::isnan(array_of(y)[1]));
        CHECK(array_of(y)[0] == array_of(tensor_of(reference::reduce(kind, x, 1)))[0]);
      }
      backend.argmax(values, 0, index);
      CHECK(index.to_vector<std::int64_t>()[1] == at);
      // The same column as a row, which a GPU reads with several threads.
      Array row({1, 201});
      for (std::int64_t i = 0; i < 201; ++i) row[i] = x[i * 3 + 1];
      Tensor first = Tensor::empty({1}, DType::i64, device);
      backend.argmax(tensor_of(row, DType::f32, device), 1, first);
      CHECK(first.item() == static_cast<double>(at));
    }
  }
}

TEST_CASE("argmax gives the first largest element along any dimension") {
  for (const Shape& shape : {Shape{7}, Shape{300, 10}, Shape{3, 4, 5}, Shape{0, 4, 5}, Shape{2, 30, 40, 3}}) {
    for (int dim = 0; dim < shape.rank(); ++dim) {
      if (shape[dim] == 0) continue;
      expect_parity_everywhere(
          {.name = join_text("argmax ", shape, " dim ", dim),
           .inputs = {exact_input(integer_array(shape, 0, 6, 3))},
           .outputs = {{reference::argmax(Array(shape), dim).shape, DType::i64}},
           .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).argmax(in[0], dim, out[0]); },
           .reference = [&](const Arrays& in) { return Arrays{reference::argmax(in[0], dim)}; },
           .dtypes = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8}});
    }
  }
}
