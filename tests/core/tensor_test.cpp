#include "engine/tensor/tensor.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tests/support/catch.h"

using namespace heddle;

TEST_CASE("views share memory and the count of changes") {
  Tensor t = Tensor::from_values(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  Tensor row = t.narrow(1, 1);
  CHECK(row.to_vector<float>() == std::vector<float>{3, 4});
  const auto before = t.version();
  row.mutable_host_data<float>()[0] = 9;
  CHECK(t.version() > before);
  CHECK(t.reshape({6}).to_vector<float>()[2] == 9);
  CHECK(t.reshape({-1, 3}).shape() == Shape{2, 3});
  CHECK_THROWS_AS(t.reshape({4}), InvalidArgument);
  CHECK_THROWS_AS(t.narrow(2, 2), InvalidArgument);
}

TEST_CASE("a slice of a flat buffer notices changes of the buffer but not of its neighbour") {
  Tensor flat = Tensor::zeros({10});
  Tensor a = flat.slice_of_flat(0, {2, 2});
  Tensor b = flat.slice_of_flat(4, {6});
  const auto va = a.version(), vb = b.version();
  a.mutable_host_data<float>()[0] = 1;
  CHECK(a.version() > va);
  CHECK(b.version() == vb);
  flat.fill_zero();
  CHECK(b.version() > vb);
}

TEST_CASE("a tensor in adopted memory keeps its owner until the last view is gone") {
  auto memory = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  const std::weak_ptr<std::vector<float>> alive = memory;
  Tensor row;
  {
    const auto storage = Storage::adopt(memory->data(), 16, Device::cpu(), memory);
    memory.reset();
    CHECK_FALSE(storage->is_external());
    CHECK_THROWS_AS(Tensor::in_storage(storage, {5}, DType::f32), InvalidArgument);
    row = Tensor::in_storage(storage, {2, 2}, DType::f32).narrow(1, 1);
  }
  CHECK(row.to_vector<float>() == std::vector<float>{3, 4});
  CHECK_FALSE(alive.expired());
  row = Tensor();
  CHECK(alive.expired());
  CHECK_THROWS_AS(Storage::adopt(&row, 4, Device::cpu(), nullptr), InvalidArgument);
}

TEST_CASE("a tensor that is undefined is refused, whatever is asked of it") {
  const Tensor none;
  CHECK_THROWS_WITH(Tensor().fill_zero(), Catch::Contains("undefined"));
  CHECK_THROWS_WITH(none.clone(), Catch::Contains("undefined"));
  CHECK_THROWS_WITH(none.reshape({1}), Catch::Contains("undefined"));
}

TEST_CASE("at most one dimension of a reshape is to be found") {
  const Tensor t = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH(t.reshape({-1, -1}), Catch::Contains("two dimensions are -1") && Catch::Contains("(2,3)"));
}

TEST_CASE("access with the wrong type is refused with both types") {
  Tensor t = Tensor::zeros({2}, DType::i64);
  CHECK_THROWS_WITH(t.host_data<float>(), Catch::Contains("f32") && Catch::Contains("i64"));
  CHECK(Tensor::full({}, 2.5).item() == 2.5);
  CHECK_THROWS_AS(Tensor::zeros({2}).item(), InvalidArgument);
  CHECK_THROWS_AS(Tensor().host_data<float>(), InvalidArgument);
}

TEST_CASE("a fill value that an integer dtype cannot hold is refused") {
  const double kNan = std::nan(""), kInfinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    for (const double value : {1e30, -1e30, kNan, kInfinity}) {
      CHECK_THROWS_WITH(Tensor::full({2}, value, dtype), Catch::Contains(name_of(dtype)) && Catch::Contains("(2)"));
    }
  }
  CHECK_THROWS_AS(Tensor::full({2}, 2147483648.0, DType::i32), InvalidArgument);
  CHECK_THROWS_AS(Tensor::full({2}, 0x1p63, DType::i64), InvalidArgument);
  CHECK_THROWS_AS(Tensor::full({2}, -1, DType::u8), InvalidArgument);
  CHECK(Tensor::full({}, -2147483648.0, DType::i32).item() == -2147483648.0);
  CHECK(Tensor::full({}, -0x1p63, DType::i64).item() == -0x1p63);
  CHECK(Tensor::full({}, 255.5, DType::u8).item() == 255);
  CHECK(std::isnan(Tensor::full({}, kNan, DType::bf16).item()));
}

TEST_CASE("bfloat16 rounds to nearest even and keeps NaN") {
  CHECK(static_cast<float>(bfloat16(1.00390625f)) == 1.0f);
  CHECK(static_cast<float>(bfloat16(1.01171875f)) == 1.015625f);
  CHECK(std::isnan(static_cast<float>(bfloat16(std::nanf("")))));
}
