#include "tests/support/conv2d_parity.h"

#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/parallel.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/parity.h"

namespace heddle::testing {

using reference::Array;
using reference::Arrays;

namespace {

struct Row {
  Shape x, w;
  Conv2dParams params = {};
};
const Row kRows[] = {
    {{2, 6, 6, 1}, {6, 5, 5, 1}},
    {{3, 12, 12, 6}, {16, 5, 5, 6}},
    {{33, 9, 8, 5}, {7, 3, 2, 5}},
    {{1, 7, 9, 3}, {5, 3, 2, 3}},
    {{17, 6, 6, 16}, {16, 3, 3, 16}, {.padding_h = 1, .padding_w = 1}},
    {{2, 9, 7, 8}, {8, 3, 3, 8}, {.stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 1}},
    {{9, 5, 5, 3}, {2, 1, 1, 3}, {.stride_h = 2, .stride_w = 2}},
    {{1, 16, 16, 2}, {3, 7, 7, 2}, {.stride_h = 3, .stride_w = 3, .padding_h = 2, .padding_w = 2}},
    {{1, 10, 11, 4}, {6, 3, 3, 4}, {.dilation_h = 2, .dilation_w = 3}},
    {{2, 8, 8, 16}, {16, 3, 3, 1}, {.padding_h = 1, .padding_w = 1, .groups = 16}},
    {{2, 8, 8, 7}, {7, 3, 3, 1}, {.stride_h = 2, .stride_w = 1, .padding_h = 1, .padding_w = 1, .groups = 7}},
    {{2, 5, 5, 12}, {18, 3, 3, 2}, {.padding_h = 1, .padding_w = 1, .groups = 6}},
    {{1, 6, 6, 4}, {8, 3, 3, 2}, {.padding_h = 2, .padding_w = 2, .dilation_h = 2, .dilation_w = 2, .groups = 2}},
    {{16, 2, 2, 32}, {48, 3, 3, 32}, {.padding_h = 1, .padding_w = 1}},
    {{3, 2, 2, 16}, {32, 3, 3, 16}, {.stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 1}},
    {{5, 1, 1, 32}, {17, 3, 3, 32}, {.padding_h = 1, .padding_w = 1}},
    {{1, 3, 5, 2}, {3, 3, 5, 2}},
    {{1, 1, 1, 1}, {1, 1, 1, 1}},
    {{0, 6, 6, 2}, {3, 3, 3, 2}},
    // The own weight gradient takes all shared memory that a block has.
    {{1, 32, 32, 4}, {2, 1, 1, 4}},
    {{2, 4, 4, 64}, {64, 3, 3, 64}, {.padding_h = 1, .padding_w = 1}},
};

Shape output_of(const Row& r) { return reference::conv2d_output_shape(r.x, r.w, r.params); }

std::string text(const char* op, const Row& r) {
  return join_text(op, " x ", r.x, " w ", r.w, " stride ", r.params.stride_h, " padding ", r.params.padding_h,
                   " dilation ", r.params.dilation_h, " groups ", r.params.groups);
}

// Sums of n products of numbers of [-1,1] in f32 and bf16 are off by more than one rounding.
double tolerance_for(std::int64_t n) { return n < 64 ? 2 : n < 1024 ? 6 : 20; }

struct Gradients {
  Array dx, dw, db;
};

// All three passes on given values.
Gradients backward(Device device, const Array& x, const Array& w, const Array& dy, const Conv2dParams& params) {
  const Tensor tx = tensor_of(x, DType::f32, device), tw = tensor_of(w, DType::f32, device),
               tdy = tensor_of(dy, DType::f32, device);
  Backend& backend = backend_for(device);
  Tensor dx = Tensor::full(x.shape, -99, DType::f32, device), dw = Tensor::full(w.shape, -99, DType::f32, device),
         db = Tensor::full({w.shape[0]}, -99, DType::f32, device);
  backend.conv2d_backward_data(tdy, tw, params, Tensor(), dx, WriteMode::store);
  backend.conv2d_backward_weight(tx, tdy, params, dw, &db, WriteMode::store);
  return {array_of(dx), array_of(dw), array_of(db)};
}

Array forward(Device device, const Array& x, const Array& w, const Conv2dParams& params) {
  Tensor y = Tensor::full(reference::conv2d_output_shape(x.shape, w.shape, params), -99, DType::f32, device);
  backend_for(device).conv2d_forward(tensor_of(x, DType::f32, device), tensor_of(w, DType::f32, device), Tensor(),
                                     params, false, y);
  return array_of(y);
}

// v v^T as an image of one channel.
Array outer(const std::vector<double>& v) {
  const auto n = static_cast<std::int64_t>(v.size());
  Array a(Shape{1, n, n, 1});
  for (std::size_t i = 0; i < v.size(); ++i) {
    for (std::size_t j = 0; j < v.size(); ++j) a.values[i * v.size() + j] = v[i] * v[j];
  }
  return a;
}

}  // namespace

void expect_conv2d_forward(Device device) {
  Backend& backend = backend_for(device);
  const std::vector<DType> dtypes = float_dtypes(device);
  for (const Row& r : kRows) {
    for (const bool relu : {false, true}) {
      for (const bool bias : {false, true}) {
        expect_parity({.name = text("conv2d_forward", r),
                       .inputs = {random_input(r.x), random_input(r.w), bias ? random_input({r.w[0]}) : no_input()},
                       .outputs = {{output_of(r)}},
                       .call = [&](auto& in, auto& out,
                                   WriteMode) { backend.conv2d_forward(in[0], in[1], in[2], r.params, relu, out[0]); },
                       .reference =
                           [&](const Arrays& in) {
                             return Arrays{reference::conv2d_forward(in[0], in[1], in[2], r.params, relu)};
                           },
                       .thread_invariant = false,
                       .tolerance = tolerance_for(r.w.numel() / r.w[0]),
                       .dtypes = dtypes},
                      device);
      }
    }
  }
}

void expect_conv2d_backward_data(Device device) {
  Backend& backend = backend_for(device);
  const std::vector<DType> dtypes = float_dtypes(device);
  for (const Row& r : kRows) {
    for (const bool mask : {false, true}) {
      expect_parity(
          {.name = text("conv2d_backward_data", r),
           .inputs = {random_input(output_of(r)), random_input(r.w), mask ? random_input(r.x) : no_input()},
           .outputs = {{r.x}},
           .call = [&](auto& in, auto& out,
                       WriteMode mode) { backend.conv2d_backward_data(in[0], in[1], r.params, in[2], out[0], mode); },
           .reference =
               [&](const Arrays& in) {
                 return Arrays{reference::conv2d_backward_data(in[0], in[1], r.params, in[2], r.x)};
               },
           .write_modes = true,
           .thread_invariant = false,
           .tolerance = tolerance_for(r.w.numel() / r.w[3]),
           .dtypes = dtypes},
          device);
    }
  }
}

void expect_conv2d_backward_weight(Device device) {
  Backend& backend = backend_for(device);
  const std::vector<DType> dtypes = float_dtypes(device);
  for (const Row& r : kRows) {
    const Shape y = output_of(r);
    for (const bool bias : {false, true}) {
      std::vector<ParityOutput> outputs = {{r.w}};
      if (bias) outputs.push_back({Shape{r.w[0]}});
      expect_parity({.name = text("conv2d_backward_weight", r),
                     .inputs = {random_input(r.x), random_input(y)},
                     .outputs = outputs,
                     .call =
                         [&](auto& in, auto& out, WriteMode mode) {
                           backend.conv2d_backward_weight(in[0], in[1], r.params, out[0], bias ? &out[1] : nullptr,
                                                          mode);
                         },
                     .reference =
                         [&](const Arrays& in) {
                           Arrays expected = {reference::conv2d_backward_weight(in[0], in[1], r.params, r.w)};
                           if (bias) expected.push_back(reference::bias_gradient(in[1]));
                           return expected;
                         },
                     .write_modes = true,
                     .thread_invariant = false,
                     .tolerance = tolerance_for(y.numel() / y[3]),
                     .dtypes = dtypes},
                    device);
    }
  }
}

void expect_uncovered_input_without_gradient(Device device) {
  for (const int threads : {1, 2, 3, 4}) {
    const ThreadLimit limit(threads);
    const Array ones6({1, 6, 6, 1}, 1.0), ones3({1, 3, 3, 1}, 1.0), dy({1, 2, 2, 1}, 1.0);
    const Conv2dParams stride2{.stride_h = 2, .stride_w = 2};
    CHECK(forward(device, ones6, ones3, stride2).values == std::vector<double>(4, 9.0));
    const Gradients g = backward(device, ones6, ones3, dy, stride2);
    CHECK(g.dx.values == outer({1, 1, 2, 1, 1, 0}).values);
    CHECK(g.dw.values == std::vector<double>(9, 4.0));
    CHECK(g.db.values == std::vector<double>{4});

    const Array counting = counting_array({1, 6, 6, 1});
    CHECK(forward(device, counting, ones3, stride2).values == std::vector<double>{63, 81, 171, 189});
    CHECK(backward(device, counting, ones3, dy, stride2).dw.values ==
          std::vector<double>{28, 32, 36, 52, 56, 60, 76, 80, 84});
  }
}

void expect_windows_of_stride_3(Device device) {
  for (const int threads : {1, 2, 3, 4}) {
    const ThreadLimit limit(threads);
    const Array x({1, 16, 16, 1}, 1.0), w({1, 7, 7, 1}, 1.0), dy({1, 5, 5, 1}, 1.0);
    const Conv2dParams params{.stride_h = 3, .stride_w = 3, .padding_h = 2, .padding_w = 2};
    const Array y = forward(device, x, w, params);
    CHECK(y.shape == Shape{1, 5, 5, 1});
    CHECK(y.at(0, 0, 0, 0) == 25);
    CHECK(y.at(0, 1, 1, 0) == 49);
    CHECK(y.at(0, 4, 4, 0) == 36);
    const Gradients g = backward(device, x, w, dy, params);
    CHECK(g.dx.values == outer({1, 2, 2, 2, 3, 2, 2, 3, 2, 2, 3, 2, 2, 2, 1, 1}).values);
    double sum = 0;
    for (const double value : g.dx.values) sum += value;
    CHECK(sum == 1024);
    CHECK(g.dw.at(0, 0, 0, 0) == 16);
    CHECK(g.dw.at(0, 2, 2, 0) == 25);
    CHECK(g.dw.at(0, 6, 6, 0) == 16);
  }
}

void expect_even_positions_only(Device device) {
  for (const int threads : {1, 2, 3, 4}) {
    for (const std::int64_t batch : {1, 9}) {
      const ThreadLimit limit(threads);
      const Array x({batch, 5, 5, 3}, 1.0), w({2, 1, 1, 3}, 1.0), dy({batch, 3, 3, 2}, 1.0);
      const Conv2dParams params{.stride_h = 2, .stride_w = 2};
      CHECK(forward(device, x, w, params).values == std::vector<double>(static_cast<std::size_t>(batch * 18), 3.0));
      const Gradients g = backward(device, x, w, dy, params);
      CHECK(g.dw.values == std::vector<double>(6, 9.0 * static_cast<double>(batch)));
      Array expected({batch, 5, 5, 3});
      for (std::int64_t i = 0; i < expected.numel(); ++i) {
        const std::int64_t column = i / 3 % 5, row = i / 15 % 5;
        expected[i] = row % 2 == 0 && column % 2 == 0 ? 2 : 0;
      }
      CHECK(g.dx.values == expected.values);
    }
  }
}

}  // namespace heddle::testing
