// Convolution of the CPU backend against the reference, and the cases with values worked out by hand.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/parallel.h"
#include "engine/device/caching_allocator.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/conv2d_parity.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;

namespace {

Backend& cpu() { return backend_for(Device::cpu()); }
}  // namespace

TEST_CASE("the convolution agrees with the reference") { expect_conv2d_forward(Device::cpu()); }
TEST_CASE("the data gradient of the convolution agrees with the reference") {
  expect_conv2d_backward_data(Device::cpu());
}
TEST_CASE("the weight gradient of the convolution agrees with the reference") {
  expect_conv2d_backward_weight(Device::cpu());
}
TEST_CASE("input that the stride leaves uncovered gets gradient zero") {
  expect_uncovered_input_without_gradient(Device::cpu());
}
TEST_CASE("a 7x7 kernel with stride 3 and padding 2 has the gradients of its windows") {
  expect_windows_of_stride_3(Device::cpu());
}
TEST_CASE("a 1x1 convolution with stride 2 reaches even positions only") { expect_even_positions_only(Device::cpu()); }

TEST_CASE("NaN passes through a convolution with ReLU") {
  for (const std::int64_t channels : {1, 32}) {
    for (const std::int64_t batch : {1, 32}) {
      const Tensor x = Tensor::full({batch, 6, 6, channels}, 1), w = Tensor::full({16, 3, 3, channels}, std::nan(""));
      Tensor y = Tensor::zeros({batch, 4, 4, 16});
      cpu().conv2d_forward(x, w, Tensor(), {}, true, y);
      CHECK(std::isnan(y.host_data<float>()[0]));
      CHECK(std::isnan(y.host_data<float>()[y.numel() - 1]));
    }
  }
}

TEST_CASE("changed weights are seen however they were changed") {
  std::vector<float> memory(static_cast<std::size_t>(16 * 9 * 16), 1.0f);
  const Tensor x = Tensor::full({2, 5, 5, 16}, 1), x32 = Tensor::full({32, 5, 5, 16}, 1);
  Tensor external = Tensor::wrap(memory.data(), {16, 3, 3, 16}, DType::f32);
  Tensor own = Tensor::full({16, 3, 3, 16}, 1);
  float* const old_pointer = own.mutable_host_data<float>();
  const auto first_output = [&](const Tensor& images, const Tensor& w) {
    Tensor y = Tensor::empty({images.dim(0), 3, 3, 16}), dx = Tensor::empty_like(images);
    cpu().conv2d_forward(images, w, Tensor(), {}, false, y);
    cpu().conv2d_backward_data(y, w, {}, Tensor(), dx, WriteMode::store);
    CHECK(dx.host_data<float>()[0] == 16.0f * y.host_data<float>()[0] * w.host_data<float>()[0]);
    return y.host_data<float>()[0];
  };
  for (const Tensor& images : {x, x32}) {
    for (int value = 1; value <= 3; ++value) {
      std::fill(memory.begin(), memory.end(), static_cast<float>(value));
      std::fill(old_pointer, old_pointer + own.numel(), static_cast<float>(value));
      CHECK(first_output(images, external) == 144.0f * static_cast<float>(value));
      CHECK(first_output(images, own) == 144.0f * static_cast<float>(value));
    }
    // Fresh tensors get the address of the one freed before.
    for (int value = 1; value <= 3; ++value) {
      CHECK(first_output(images, Tensor::full({16, 3, 3, 16}, value)) == 144.0f * static_cast<float>(value));
    }
  }
}

TEST_CASE("batch sizes at random need little more memory than the largest alone") {
  CachingAllocator& allocator = allocator_for(Device::cpu());
  const Tensor w = Tensor::full({50, 5, 5, 20}, 0.5);
  const auto step = [&](std::int64_t batch) {
    const Tensor x = Tensor::full({batch, 13, 13, 20}, 1);
    Tensor y = Tensor::empty({batch, 9, 9, 50}), dx = Tensor::empty_like(x), dw = Tensor::empty_like(w);
    cpu().conv2d_forward(x, w, Tensor(), {}, true, y);
    cpu().conv2d_backward_data(y, w, {}, Tensor(), dx, WriteMode::store);
    cpu().conv2d_backward_weight(x, y, {}, dw, nullptr, WriteMode::store);
  };
  allocator.release_cached();
  allocator.reset_peaks();
  const std::size_t before = allocator.stats().reserved_nbytes;
  step(256);
  const std::size_t largest = allocator.stats().peak_reserved_nbytes - before;
  for (std::uint64_t i = 0; i < 60; ++i) step(1 + static_cast<std::int64_t>(i * 2654435761u % 256));
  const std::size_t random = allocator.stats().peak_reserved_nbytes - before;
  CHECK(static_cast<double>(random) <= 1.3 * static_cast<double>(largest));
  const auto steady = allocator.stats().device_allocations;
  for (int i = 0; i < 3; ++i) step(256);
  CHECK(allocator.stats().device_allocations == steady);
}

TEST_CASE("a convolution survives running out of memory and the next one is right") {
  CachingAllocator& allocator = allocator_for(Device::cpu());
  const Tensor x = Tensor::full({8, 28, 28, 16}, 1), w = Tensor::full({16, 3, 3, 16}, 1);
  allocator.release_cached();
  allocator.set_limit(allocator.stats().reserved_nbytes + (std::size_t{1} << 20));
  CHECK_THROWS_AS(Tensor::empty({256, 28, 28, 64}), OutOfMemory);
  allocator.set_limit(0);
  Tensor y = Tensor::empty({8, 26, 26, 16});
  cpu().conv2d_forward(x, w, Tensor(), {}, false, y);
  CHECK(array_of(y).values == std::vector<double>(static_cast<std::size_t>(y.numel()), 144.0));
}

TEST_CASE("integers are refused with the name of the operation and the dtype") {
  const Tensor x = Tensor::zeros({1, 3, 3, 1}, DType::i32), w = Tensor::zeros({1, 1, 1, 1}, DType::i32);
  Tensor y = Tensor::zeros({1, 3, 3, 1}, DType::i32);
  CHECK_THROWS_WITH(cpu().conv2d_forward(x, w, Tensor(), {}, false, y), "conv2d_forward: no i32 on the CPU");
}

TEST_CASE("the backend names its libraries and instruction sets") {
  const std::string text = cpu().description();
  INFO(text);
  CHECK(text.starts_with("oneDNN "));
  CHECK(text.find("; own kernels: ") != std::string::npos);
}
