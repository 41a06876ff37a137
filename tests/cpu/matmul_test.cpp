// Matrix products and linear layers of the CPU backend against the reference.
#include <cmath>
#include <vector>

#include "engine/backend/backend.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/matmul_parity.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Arrays;

namespace {

Backend& cpu() { return backend_for(Device::cpu()); }
const std::vector<DType> kFloats = {DType::f32, DType::f64, DType::bf16};

}  // namespace

TEST_CASE("matrix products with transposes and batches agree with the reference") { expect_matmul(Device::cpu()); }
TEST_CASE("linear layers agree with the reference") { expect_linear_forward(Device::cpu()); }
TEST_CASE("gradients of linear layers agree with the reference") { expect_linear_backward(Device::cpu()); }

TEST_CASE("a linear layer without inputs gives its bias") {
  Tensor y = Tensor::full({2, 3}, -9);
  const Tensor bias = Tensor::from_values(std::vector<float>{1, -2, 3}, {3});
  cpu().linear_forward(Tensor::empty({2, 0}), Tensor::empty({3, 0}), bias, true, y);
  CHECK(array_of(y).values == std::vector<double>{1, 0, 3, 1, 0, 3});
}

TEST_CASE("NaN passes through a linear layer with ReLU") {
  for (const DType dtype : kFloats) {
    Tensor y = Tensor::zeros({2, 3}, dtype);
    cpu().linear_forward(Tensor::full({2, 4}, 1, dtype), Tensor::full({3, 4}, std::nan(""), dtype), Tensor(), true, y);
    CHECK(std::isnan(array_of(y)[0]));
  }
}
