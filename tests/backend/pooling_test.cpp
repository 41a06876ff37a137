// Pooling against the references, and the numbers of its geometry, on every device.
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

const std::vector<DType> kFloats = {DType::f32, DType::f64, DType::bf16};

struct Row {
  Shape x;
  Pool2dParams params;
};
// kernel, stride, padding of both axes alike; the extra rows differ per axis.
Pool2dParams square(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0, bool ceil = false,
                    bool count_include_pad = false) {
  return {kernel, kernel, stride, stride, padding, padding, ceil, count_include_pad};
}
const Row kRows[] = {
    {{2, 8, 8, 6}, square(2, 2)},
    {{3, 24, 24, 20}, square(2, 2)},
    {{1, 7, 9, 1}, square(2, 2)},
    {{2, 7, 9, 3}, square(2, 2, 1, true)},
    {{2, 7, 9, 3}, square(2, 2, 1, true, true)},
    {{2, 11, 8, 65}, square(3, 2, 1)},
    {{2, 11, 8, 16}, square(3, 2, 1, true, true)},
    {{2, 9, 9, 5}, square(3, 1, 1)},
    {{2, 8, 10, 2}, square(3, 4, 0, true)},
    {{1, 6, 7, 4}, square(1, 2, 0, true)},
    {{1, 6, 7, 130}, {.kernel_h = 3, .kernel_w = 2, .stride_h = 1, .stride_w = 3, .padding_h = 1, .padding_w = 0}},
    {{5, 16, 17, 3}, {.kernel_h = 5, .kernel_w = 4, .stride_h = 2, .stride_w = 1, .padding_h = 2, .padding_w = 1}},
    {{2, 20, 19, 3}, square(17, 3, 4)},
    {{0, 8, 8, 3}, square(2, 2)},
    {{64, 12, 12, 16}, square(2, 2)}};

Array pool(const Array& x, const Pool2dParams& params, Device device) {
  Tensor y = Tensor::empty(reference::pool2d_output_shape(x.shape, params), DType::f32, device), none;
  backend_for(device).max_pool2d_forward(tensor_of(x, DType::f32, device), params, false, y, none);
  return array_of(y);
}

}  // namespace

TEST_CASE("max pooling agrees with the reference") {
  for (const Row& row : kRows) {
    const DType index = row.params.kernel_h * row.params.kernel_w <= 255 ? DType::u8 : DType::i32;
    const Shape y = reference::pool2d_output_shape(row.x, row.params);
    for (const bool relu : {false, true}) {
      expect_parity_everywhere(
          {.name = join_text("max_pool ", row.x, " k", row.params.kernel_h, relu ? " relu" : ""),
           .inputs = {random_input(row.x, -3, 1)},
           .outputs = {{y}},
           .call =
               [&](auto& in, auto& out, WriteMode) {
                 Tensor argmax = Tensor::empty(y, index, out[0].device());
                 backend_of(out).max_pool2d_forward(in[0], row.params, relu, out[0], argmax);
               },
           .reference =
               [&](const Arrays& in) { return Arrays{reference::max_pool2d_forward(in[0], row.params, relu).y}; },
           .dtypes = kFloats});
      // Few different values, so that windows have ties: the first one gets the gradient.
      expect_parity_everywhere(
          {.name = join_text("max_pool_backward ", row.x, " k", row.params.kernel_h, relu ? " relu" : ""),
           .inputs = {exact_input(integer_array(row.x, -5, 3, 2)), random_input(y)},
           .outputs = {{row.x}},
           .call =
               [&](auto& in, auto& out, WriteMode mode) {
                 const Device device = out[0].device();
                 Tensor argmax = Tensor::empty(y, index, device), value = Tensor::empty(y, in[0].dtype(), device);
                 backend_of(out).max_pool2d_forward(in[0], row.params, relu, value, argmax);
                 backend_of(out).max_pool2d_backward(in[1], relu ? value : Tensor(), argmax, row.params, out[0], mode);
               },
           .reference =
               [&](const Arrays& in) { return Arrays{reference::max_pool2d_backward(in[1], in[0], row.params, relu)}; },
           .write_modes = true,
           .dtypes = {DType::f32, DType::f64}});
    }
    expect_parity_everywhere(
        {.name = join_text("argmax of max_pool ", row.x, " k", row.params.kernel_h),
         .inputs = {exact_input(integer_array(row.x, -5, 3, 2))},
         .outputs = {{y, index}},
         .call =
             [&](auto& in, auto& out, WriteMode) {
               Tensor value = Tensor::empty(y, in[0].dtype(), out[0].device());
               backend_of(out).max_pool2d_forward(in[0], row.params, false, value, out[0]);
             },
         .reference =
             [&](const Arrays& in) { return Arrays{reference::max_pool2d_forward(in[0], row.params, false).argmax}; },
         .dtypes = kFloats});
  }
}

TEST_CASE("average pooling agrees with the reference") {
  for (const Row& row : kRows) {
    const Shape y = reference::pool2d_output_shape(row.x, row.params);
    expect_parity_everywhere(
        {.name = join_text("avg_pool ", row.x, " k", row.params.kernel_h),
         .inputs = {random_input(row.x)},
         .outputs = {{y}},
         .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).avg_pool2d_forward(in[0], row.params, out[0]); },
         .reference = [&](const Arrays& in) { return Arrays{reference::avg_pool2d_forward(in[0], row.params)}; },
         .dtypes = kFloats});
    for (const bool masked : {false, true}) {
      expect_parity_everywhere(
          {.name = join_text("avg_pool_backward ", row.x, " k", row.params.kernel_h, masked ? " mask" : ""),
           .inputs = {random_input(y), masked ? random_input(row.x) : no_input()},
           .outputs = {{row.x}},
           .call = [&](auto& in, auto& out,
                       WriteMode mode) { backend_of(out).avg_pool2d_backward(in[0], row.params, in[1], out[0], mode); },
           .reference =
               [&](const Arrays& in) {
                 return Arrays{reference::avg_pool2d_backward(in[0], row.params, in[1], row.x)};
               },
           .write_modes = true,
           .dtypes = {DType::f32, DType::f64}});
    }
  }
}

TEST_CASE("adaptive pooling agrees with the reference") {
  const std::pair<Shape, std::pair<int, int>> cases[] = {{{2, 5, 5, 3}, {3, 3}},   {{2, 2, 2, 3}, {4, 4}},
                                                         {{3, 7, 9, 70}, {1, 1}},  {{1, 7, 9, 2}, {2, 5}},
                                                         {{2, 10, 11, 1}, {7, 3}}, {{0, 5, 5, 3}, {2, 2}}};
  for (const auto& [x, out_size] : cases) {
    const auto [out_h, out_w] = out_size;
    const Shape x_shape = x, y{x[0], out_h, out_w, x[3]};
    const auto h = out_h, w = out_w;
    expect_parity_everywhere(
        {.name = join_text("adaptive avg ", x, " to ", y),
         .inputs = {random_input(x)},
         .outputs = {{y}},
         .call =
             [&](auto& in, auto& out, WriteMode) {
               Tensor none;
               backend_of(out).adaptive_pool2d_forward(PoolKind::avg, in[0], out[0], none);
             },
         .reference = [=](const Arrays& in) { return Arrays{reference::adaptive_avg_pool2d_forward(in[0], h, w)}; },
         .dtypes = kFloats});
    expect_parity_everywhere(
        {.name = join_text("adaptive avg backward ", x, " from ", y),
         .inputs = {random_input(y)},
         .outputs = {{x}},
         .call =
             [&](auto& in, auto& out, WriteMode mode) {
               backend_of(out).adaptive_pool2d_backward(PoolKind::avg, in[0], Tensor(), out[0], mode);
             },
         .reference = [=](const Arrays& in) { return Arrays{reference::adaptive_avg_pool2d_backward(in[0], x_shape)}; },
         .write_modes = true});
    expect_parity_everywhere(
        {.name = join_text("adaptive max ", x, " to ", y),
         .inputs = {exact_input(integer_array(x, -5, 3, 2))},
         .outputs = {{y}, {y, DType::i32}},
         .call = [&](auto& in, auto& out,
                     WriteMode) { backend_of(out).adaptive_pool2d_forward(PoolKind::max, in[0], out[0], out[1]); },
         .reference =
             [=](const Arrays& in) {
               auto result = reference::adaptive_max_pool2d_forward(in[0], h, w);
               return Arrays{result.y, result.argmax};
             },
         .dtypes = kFloats});
    expect_parity_everywhere(
        {.name = join_text("adaptive max backward ", x, " from ", y),
         .inputs = {exact_input(integer_array(x, -5, 3, 2)), random_input(y)},
         .outputs = {{x}},
         .call =
             [&](auto& in, auto& out, WriteMode mode) {
               const Device device = out[0].device();
               Tensor value = Tensor::empty(y, in[0].dtype(), device), argmax = Tensor::empty(y, DType::i32, device);
               backend_of(out).adaptive_pool2d_forward(PoolKind::max, in[0], value, argmax);
               backend_of(out).adaptive_pool2d_backward(PoolKind::max, in[1], argmax, out[0], mode);
             },
         .reference = [=](const Arrays& in) { return Arrays{reference::adaptive_max_pool2d_backward(in[1], in[0])}; },
         .write_modes = true});
  }
}

TEST_CASE("pooling with sizes rounded up drops windows that start behind the input") {
  for (const Device device : test_devices()) {
    CHECK(compare(pool(counting_array({1, 6, 7, 1}), square(1, 2, 0, true), device),
                  Array({1, 3, 4, 1}, {0, 2, 4, 6, 14, 16, 18, 20, 28, 30, 32, 34}), 0) == "");
    CHECK(compare(pool(counting_array({1, 8, 10, 1}), square(3, 4, 0, true), device),
                  Array({1, 2, 3, 1}, {22, 26, 29, 62, 66, 69}), 0) == "");
    CHECK(compare(pool(counting_array({1, 5, 5, 1}, 1), square(2, 2, 1, true), device),
                  Array({1, 3, 3, 1}, {1, 3, 5, 11, 13, 15, 21, 23, 25}), 0) == "");
  }
}

TEST_CASE("adaptive windows are those of the definition") {
  for (const Device device : test_devices()) {
    const auto on_device = [&](const Array& array) { return tensor_of(array, DType::f32, device); };
    Backend& backend = backend_for(device);
    const Tensor x = on_device(counting_array({1, 5, 5, 1}));
    Tensor y = on_device(Array({1, 3, 3, 1})), argmax = Tensor::empty({1, 3, 3, 1}, DType::i32, device), none;
    backend.adaptive_pool2d_forward(PoolKind::avg, x, y, none);
    CHECK(compare(array_of(y), Array({9}, {3, 4.5, 6, 10.5, 12, 13.5, 18, 19.5, 21}), 1e-6) == "");
    backend.adaptive_pool2d_forward(PoolKind::max, x, y, argmax);
    CHECK(compare(array_of(y), Array({9}, {6, 8, 9, 16, 18, 19, 21, 23, 24}), 0) == "");
    Tensor repeated = on_device(Array({1, 4, 4, 1}));
    backend.adaptive_pool2d_forward(PoolKind::avg, on_device(counting_array({1, 2, 2, 1})), repeated, none);
    CHECK(compare(array_of(repeated), Array({16}, {0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3}), 0) == "");
    Tensor dx = on_device(Array({1, 5, 5, 1}));
    backend.adaptive_pool2d_backward(PoolKind::avg, on_device(Array({1, 3, 3, 1}, 1)), Tensor(), dx, WriteMode::store);
    const double v[] = {1.0 / 2, 5.0 / 6, 1.0 / 3, 5.0 / 6, 1.0 / 2};
    Array expected({1, 5, 5, 1});
    for (std::int64_t i = 0; i < 25; ++i) expected[i] = v[i / 5] * v[i % 5];
    CHECK(compare(array_of(dx), expected, 1e-6) == "");
  }
}

TEST_CASE("a NaN wins its pooling windows, and a window of minus infinity keeps it") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const Device device : test_devices()) {
    for (const std::int64_t channels : {1, 3, 16}) {
      for (const DType dtype : kFloats) {
        if (!holds(device, dtype)) continue;
        for (std::int64_t at = 0; at < 4; ++at) {
          Array x({1, 2, 4, channels});
          for (std::int64_t i = 0; i < x.numel(); ++i) x[i] = i / channels % 4 < 2 ? 1 : -inf;
          x[(at / 2 * 4 + at % 2) * channels] = nan;
          Tensor y = Tensor::empty({1, 1, 2, channels}, dtype, device);
          Tensor argmax = Tensor::empty(y.shape(), DType::u8, device);
          backend_for(device).max_pool2d_forward(tensor_of(x, dtype, device), square(2, 2), false, y, argmax);
          const Array result = array_of(y);
          CHECK(std::isnan(result[0]));
          CHECK(argmax.to_vector<std::uint8_t>()[0] == at);
          if (channels > 1) CHECK(result[1] == 1);
          CHECK(result[channels] == -inf);
        }
      }
    }
  }
}
