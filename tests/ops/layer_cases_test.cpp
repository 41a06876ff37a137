// Pooling geometry (C03) and convolutions whose stride leaves input uncovered (C04), with the numbers given there.
#include "engine/autograd/backward.h"
#include "engine/core/parallel.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;

namespace {
using List = std::vector<double>;

// One image whose channels are all the same.
Tensor image(std::int64_t h, std::int64_t w, std::int64_t channels, double first, DType dtype, Device device) {
  List v;
  for (std::int64_t i = 0; i < h * w; ++i)
    v.insert(v.end(), static_cast<std::size_t>(channels), first + static_cast<double>(i));
  return values({1, h, w, channels}, v, dtype, device);
}

// Every channel of y equals expected, and nothing is infinite or the lowest float.
void check_channels(const Variable& y, const Shape& size, const List& expected) {
  CHECK(y.dim(1) == size[0]);
  CHECK(y.dim(2) == size[1]);
  List repeated;
  for (const double v : expected) repeated.insert(repeated.end(), static_cast<std::size_t>(y.dim(3)), v);
  CHECK(differs(list(y), repeated) == "");
}

// The cases run in both dtypes, with channel counts that take different paths, on every device.
template <class Body>
void for_each_setting(Body body) {
  for (const Device device : test_devices()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      if (dtype == DType::f64 && !device.is_cpu()) continue;
      for (const std::int64_t channels : {1, 3, 16}) {
        INFO(device << ' ' << dtype << ", " << channels << " channels");
        body(channels, dtype, device);
      }
    }
  }
}

Pool2dParams square(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return {.kernel_h = kernel,
          .kernel_w = kernel,
          .stride_h = stride,
          .stride_w = stride,
          .padding_h = padding,
          .padding_w = padding,
          .ceil_mode = true};
}
}  // namespace

TEST_CASE("ceil mode drops a last window that would start in the padding") {
  for_each_setting([](std::int64_t c, DType dtype, Device device) {
    check_channels(ops::max_pool2d(image(6, 7, c, 0, dtype, device), square(1, 2, 0)), {3, 4},
                   {0, 2, 4, 6, 14, 16, 18, 20, 28, 30, 32, 34});
    check_channels(ops::max_pool2d(image(8, 10, c, 0, dtype, device), square(3, 4, 0)), {2, 3},
                   {22, 26, 29, 62, 66, 69});
    check_channels(ops::max_pool2d(image(5, 5, c, 1, dtype, device), square(2, 2, 1)), {3, 3},
                   {1, 3, 5, 11, 13, 15, 21, 23, 25});
    // The same windows averaged over what lies inside, and with padding counted, as PyTorch does: all finite.
    Pool2dParams inside = square(2, 2, 1);
    inside.count_include_pad = false;
    check_channels(ops::avg_pool2d(image(5, 5, c, 1, dtype, device), inside), {3, 3},
                   {1, 2.5, 4.5, 8.5, 10, 12, 18.5, 20, 22});
    check_channels(ops::avg_pool2d(image(5, 5, c, 1, dtype, device), square(2, 2, 1)), {3, 3},
                   {0.25, 1.25, 2.25, 4.25, 10, 12, 9.25, 20, 22});
  });
}

TEST_CASE("adaptive windows cover the input, and repeat it where the output is larger") {
  for_each_setting([](std::int64_t c, DType dtype, Device device) {
    const Tensor x = image(5, 5, c, 0, dtype, device);
    check_channels(ops::adaptive_avg_pool2d(x, 3, 3), {3, 3}, {3, 4.5, 6, 10.5, 12, 13.5, 18, 19.5, 21});
    check_channels(ops::adaptive_max_pool2d(x, 3, 3), {3, 3}, {6, 8, 9, 16, 18, 19, 21, 23, 24});
    const List blocks{0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3};
    check_channels(ops::adaptive_avg_pool2d(image(2, 2, c, 0, dtype, device), 4, 4), {4, 4}, blocks);
    check_channels(ops::adaptive_max_pool2d(image(2, 2, c, 0, dtype, device), 4, 4), {4, 4}, blocks);
    Variable leaf(x, true);
    backward(ops::sum(ops::adaptive_avg_pool2d(leaf, 3, 3)));
    check_channels(leaf.grad(), {5, 5}, outer({1.0 / 2, 5.0 / 6, 1.0 / 3, 5.0 / 6, 1.0 / 2}));
  });
}

TEST_CASE("padding that makes a window hold padding only is an error") {
  const Variable x = Tensor::full({1, 5, 5, 1}, 1.0);
  for (const auto pool : {ops::max_pool2d, ops::relu_max_pool2d, ops::avg_pool2d}) {
    CHECK_THROWS_WITH(pool(x, square(2, 2, 2)), Catch::Contains("padding (2,2)") && Catch::Contains("kernel (2,2)"));
  }
}

TEST_CASE("a convolution's gradient is zero where no window looked") {
  for_each_setting([](std::int64_t, DType dtype, Device device) {
    const auto run = [&](std::int64_t size, std::int64_t kernel, const Conv2dParams& params, bool counting) {
      Variable x(
          counting ? image(size, size, 1, 0, dtype, device) : Tensor::full({1, size, size, 1}, 1.0, dtype, device),
          true);
      Variable w(Tensor::full({1, kernel, kernel, 1}, 1.0, dtype, device), true);
      const Variable y = ops::conv2d(x, w, {}, params);
      backward(ops::sum(y));
      return std::vector<List>{list(y), list(x.grad()), list(w.grad())};
    };
    const Conv2dParams stride2{.stride_h = 2, .stride_w = 2};
    const auto ones = run(6, 3, stride2, false);
    CHECK(ones[0] == List(4, 9));
    CHECK(ones[1] == outer({1, 1, 2, 1, 1, 0}));
    CHECK(ones[2] == List(9, 4));
    const auto counting = run(6, 3, stride2, true);
    CHECK(counting[0] == List{63, 81, 171, 189});
    CHECK(counting[2] == List{28, 32, 36, 52, 56, 60, 76, 80, 84});
    const auto large = run(16, 7, {.stride_h = 3, .stride_w = 3, .padding_h = 2, .padding_w = 2}, false);
    REQUIRE(large[0].size() == 25);
    CHECK(large[0][0] == 25);
    CHECK(large[0][6] == 49);
    CHECK(large[0][24] == 36);
    CHECK(large[1] == outer({1, 2, 2, 2, 3, 2, 2, 3, 2, 2, 3, 2, 2, 2, 1, 1}));
    double total = 0;
    for (const double g : large[1]) total += g;
    CHECK(total == 1024);
    CHECK(large[2][0] == 16);
    CHECK(large[2][2 * 7 + 2] == 25);
    CHECK(large[2][6 * 7 + 6] == 16);
  });
}

TEST_CASE("a 1x1 convolution with stride 2 touches every second pixel, for any batch and thread count") {
  for_each_setting([](std::int64_t, DType dtype, Device device) {
    for (const std::int64_t n : {1, 9}) {
      for (const int threads : {1, 2, 3}) {
        const ThreadLimit limit(threads);
        Variable x(Tensor::full({n, 5, 5, 3}, 1.0, dtype, device), true);
        Variable w(Tensor::full({2, 1, 1, 3}, 1.0, dtype, device), true);
        const Variable y = ops::conv2d(x, w, {}, {.stride_h = 2, .stride_w = 2});
        CHECK(list(y) == List(static_cast<std::size_t>(n * 9 * 2), 3));
        backward(ops::sum(y));
        CHECK(list(w.grad()) == List(6, static_cast<double>(9 * n)));
        List expected;
        for (std::int64_t i = 0; i < n; ++i) {
          for (const double g : outer({1, 0, 1, 0, 1})) expected.insert(expected.end(), 3, 2 * g);
        }
        CHECK(list(x.grad()) == expected);
      }
    }
  });
}

TEST_CASE("an image without pixels, or with more than can be counted, is refused whatever the padding") {
  const auto wide = std::numeric_limits<std::int64_t>::max();
  const Tensor w = Tensor::full({1, 3, 3, 1}, 1.0);
  const Conv2dParams conv{.padding_h = 2, .padding_w = 2};
  const Pool2dParams pool{.kernel_h = 2, .kernel_w = 2, .padding_h = 1, .padding_w = 1};
  for (const Shape& shape : {Shape{2, 0, 0, 1}, Shape{2, 0, 5, 1}, Shape{2, 5, 0, 1}, Shape{0, wide, 1, 1}}) {
    const Variable x = Tensor::zeros(shape);
    const auto named = Catch::Contains(shape.to_string() + " is ");
    CHECK_THROWS_WITH(ops::conv2d(x, w, {}, conv), named);
    CHECK_THROWS_WITH(ops::conv2d_relu(x, w, {}, conv), named);
    CHECK_THROWS_WITH(ops::max_pool2d(x, pool), named);
    CHECK_THROWS_WITH(ops::avg_pool2d(x, pool), named);
  }
}

TEST_CASE("a kernel larger than the padded input is an error with both sizes") {
  const Variable x = Tensor::full({1, 4, 9, 1}, 1.0);
  CHECK_THROWS_WITH(ops::conv2d(x, Tensor::full({1, 7, 7, 1}, 1.0), {}, {.padding_h = 1, .padding_w = 1}),
                    Catch::Contains("7") && Catch::Contains("6 (4 + 2*1)") && Catch::Contains("(1,4,9,1)"));
  CHECK_THROWS_WITH(ops::conv2d(x, Tensor::full({1, 3, 3, 1}, 1.0), {}, {.dilation_h = 2}),
                    Catch::Contains("height 5") && Catch::Contains("4"));
  CHECK_THROWS_WITH(ops::max_pool2d(x, {.kernel_h = 5, .kernel_w = 2}), Catch::Contains("height 5"));
}
