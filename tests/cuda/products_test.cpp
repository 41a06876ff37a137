// Convolutions, linear layers and matrix products on a GPU, with the libraries' kernels and with the own ones.
#include <cmath>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/kernel_choice.h"
#include "engine/backend/math_settings.h"
#include "engine/device/caching_allocator.h"
#include "engine/device/device_runtime.h"
#include "tests/support/catch.h"
#include "tests/support/conv2d_parity.h"
#include "tests/support/matmul_parity.h"
#include "tests/support/values.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

// Calls check(device) under every choice of kernels.
template <class Check>
void for_each_choice(Check&& check) {
  const Device device = Device::cuda(0);
  for (const KernelChoice choice : {KernelChoice::automatic, KernelChoice::vendor, KernelChoice::own}) {
    INFO("kernels: " << name_of(choice));
    const KernelChoiceGuard guard(choice);
    check(device);
  }
}

class SettingsGuard {
 public:
  explicit SettingsGuard(const MathSettings& settings) : previous_(math_settings()) { set_math_settings(settings); }
  ~SettingsGuard() { set_math_settings(previous_); }
  SettingsGuard(const SettingsGuard&) = delete;
  SettingsGuard& operator=(const SettingsGuard&) = delete;

 private:
  MathSettings previous_;
};

}  // namespace

TEST_CASE("convolutions on a GPU agree with the reference") { for_each_choice(expect_conv2d_forward); }
TEST_CASE("data gradients of convolutions on a GPU agree with the reference") {
  for_each_choice(expect_conv2d_backward_data);
}
TEST_CASE("weight gradients of convolutions on a GPU agree with the reference") {
  for_each_choice(expect_conv2d_backward_weight);
}
TEST_CASE("convolutions on a GPU have the gradients of their windows") {
  for_each_choice([](Device device) {
    expect_uncovered_input_without_gradient(device);
    expect_windows_of_stride_3(device);
    expect_even_positions_only(device);
  });
}
TEST_CASE("matrix products on a GPU agree with the reference") { for_each_choice(expect_matmul); }
TEST_CASE("linear layers on a GPU agree with the reference") { for_each_choice(expect_linear_forward); }
TEST_CASE("gradients of linear layers on a GPU agree with the reference") { for_each_choice(expect_linear_backward); }

TEST_CASE("NaN passes through convolutions and linear layers with ReLU on a GPU") {
  for_each_choice([](Device device) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool has_bias : {false, true}) {
        const Tensor bias = has_bias ? Tensor::full({16}, 1, dtype, device) : Tensor();
        for (const std::int64_t channels : {1, 32}) {
          INFO(dtype << (has_bias ? " with bias, " : ", ") << channels << " channels");
          const Tensor x = Tensor::full({8, 6, 6, channels}, 1, dtype, device),
                       w = Tensor::full({16, 3, 3, channels}, std::nan(""), dtype, device);
          Tensor y = Tensor::full({8, 4, 4, 16}, 1, dtype, device);
          backend_for(device).conv2d_forward(x, w, bias, {}, true, y);
          for (const double value : array_of(y).values) REQUIRE(std::isnan(value));
        }
        const Tensor x = Tensor::full({24, 32}, std::nan(""), dtype, device),
                     w = Tensor::full({16, 32}, 1, dtype, device);
        Tensor y = Tensor::full({24, 16}, 1, dtype, device);
        backend_for(device).linear_forward(x, w, bias, true, y);
        for (const double value : array_of(y).values) REQUIRE(std::isnan(value));
      }
    }
  });
}

TEST_CASE("each choice of kernels runs on kernels of that kind") {
  const auto used = [](Device device, std::int64_t channels) {
    const Tensor x = Tensor::full({2, 6, 6, channels}, 1, DType::f32, device),
                 w = Tensor::full({16, 3, 3, channels}, 1, DType::f32, device);
    Tensor y = Tensor::empty({2, 4, 4, 16}, DType::f32, device);
    take_noted_kernel();
    backend_for(device).conv2d_forward(x, w, Tensor(), {}, false, y);
    return std::string(take_noted_kernel().value().name);
  };
  for_each_choice([&](Device device) {
    switch (kernel_choice()) {
      case KernelChoice::automatic:
        CHECK(used(device, 1) == "direct");
        CHECK(used(device, 16) == "cudnn");
        break;
      case KernelChoice::vendor:
        CHECK(used(device, 1) == "cudnn");
        CHECK(used(device, 16) == "cudnn");
        break;
      case KernelChoice::own:
        CHECK(used(device, 1) == "direct");
        CHECK(used(device, 16) == "tiles");
        break;
    }
  });
}

TEST_CASE("a convolution on a GPU with little memory left runs on a plan with less scratch") {
  const Device device = Device::cuda(0);
  const KernelChoiceGuard guard(KernelChoice::vendor);
  const Tensor x = Tensor::full({8, 28, 28, 16}, 1, DType::f32, device),
               w = Tensor::full({16, 3, 3, 16}, 1, DType::f32, device);
  Tensor y = Tensor::empty({8, 26, 26, 16}, DType::f32, device);
  CachingAllocator& allocator = allocator_for(device);
  runtime_for(device).synchronize(current_stream(device));
  allocator.release_cached();
  // Everything but a few blocks is taken.
  const Tensor rest = Tensor::empty({std::int64_t{64} << 20}, DType::u8, device);
  allocator.set_limit(allocator.stats().reserved_nbytes);
  std::vector<Tensor> taken;
  try {
    for (;;) taken.push_back(Tensor::empty({4096}, DType::u8, device));
  } catch (const OutOfMemory&) {
  }
  take_noted_kernel();
  backend_for(device).conv2d_forward(x, w, Tensor(), {}, false, y);
  allocator.set_limit(0);
  CHECK(take_noted_kernel().value().name == "cudnn");
  CHECK(array_of(y).values == std::vector<double>(static_cast<std::size_t>(y.numel()), 144.0));
}

TEST_CASE("without scratch memory and with deterministic algorithms only, results on a GPU are the same") {
  for (const MathSettings& settings : {MathSettings{.workspace_limit_nbytes = 0}, MathSettings{.deterministic = true},
                                       MathSettings{.time_algorithms = true}}) {
    const SettingsGuard guard(settings);
    for_each_choice([](Device device) {
      expect_even_positions_only(device);
      expect_windows_of_stride_3(device);
    });
  }
}
