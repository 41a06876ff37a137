// Every implementation of convolution, chosen or not, against the plain loops in f64 (which have their own test).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/core/parallel.h"
#include "engine/core/random.h"
#include "engine/cpu/conv2d_list.h"
#include "engine/cpu/dnnl_context.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::cpu;

namespace {

struct Geometry {
  std::int64_t batch, in_h, in_w, in_c, out_c, kernel_h, kernel_w;
  Conv2dParams params = {};
};

std::int64_t output_size(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                         std::int64_t dilation) {
  return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

ConvSizes sizes_of(const Geometry& g) {
  const Conv2dParams& p = g.params;
  return {.batch = g.batch,
          .in_h = g.in_h,
          .in_w = g.in_w,
          .in_c = g.in_c,
          .out_h = output_size(g.in_h, g.kernel_h, p.stride_h, p.padding_h, p.dilation_h),
          .out_w = output_size(g.in_w, g.kernel_w, p.stride_w, p.padding_w, p.dilation_w),
          .out_c = g.out_c,
          .kernel_h = g.kernel_h,
          .kernel_w = g.kernel_w,
          .params = p};
}

std::string text(const Geometry& g) {
  const Conv2dParams& p = g.params;
  return join_text("x (", g.batch, ',', g.in_h, ',', g.in_w, ',', g.in_c, ") out_c ", g.out_c, " k ", g.kernel_h, 'x',
                   g.kernel_w, " s ", p.stride_h, 'x', p.stride_w, " p ", p.padding_h, 'x', p.padding_w, " d ",
                   p.dilation_h, 'x', p.dilation_w, " groups ", p.groups);
}

const std::vector<Geometry> kGeometries = {
    {4, 12, 12, 1, 6, 5, 5},
    {3, 12, 12, 6, 16, 5, 5},
    {33, 13, 13, 20, 50, 5, 5},
    {32, 28, 28, 1, 20, 3, 3},
    {1, 7, 9, 3, 5, 3, 2},
    {2, 8, 8, 16, 32, 3, 3, {.padding_h = 1, .padding_w = 1}},
    {2, 9, 7, 8, 8, 3, 3, {.stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 1}},
    {2, 9, 7, 8, 24, 1, 1, {.stride_h = 2, .stride_w = 2}},
    {9, 5, 5, 3, 2, 1, 1, {.stride_h = 2, .stride_w = 2}},
    {2, 16, 16, 3, 4, 7, 7, {.stride_h = 3, .stride_w = 3, .padding_h = 2, .padding_w = 2}},
    {2, 28, 28, 1, 64, 7, 7, {.stride_h = 2, .stride_w = 2, .padding_h = 3, .padding_w = 3}},
    {1, 10, 11, 4, 6, 3, 3, {.dilation_h = 2, .dilation_w = 3}},
    {2, 10, 10, 16, 16, 3, 3, {.padding_h = 2, .padding_w = 2, .dilation_h = 2, .dilation_w = 2}},
    {2, 8, 8, 16, 16, 3, 3, {.padding_h = 1, .padding_w = 1, .groups = 16}},
    {2, 8, 8, 7, 7, 3, 3, {.padding_h = 1, .padding_w = 1, .groups = 7}},
    {2, 8, 8, 12, 18, 3, 3, {.padding_h = 1, .padding_w = 1, .groups = 6}},
    {2, 6, 6, 32, 64, 3, 3, {.groups = 2}},
    {1, 4, 4, 64, 64, 3, 3, {.padding_h = 1, .padding_w = 1}},
    {4, 2, 2, 128, 96, 3, 3, {.padding_h = 1, .padding_w = 1}},
    {3, 1, 1, 64, 128, 3, 3, {.padding_h = 1, .padding_w = 1}},
    {2, 4, 4, 17, 33, 1, 1},
    {1, 3, 5, 2, 3, 3, 5},
    {1, 6, 20, 5, 3, 1, 9, {.stride_w = 2, .padding_w = 4}},
    {2, 6, 6, 3, 3, 5, 5, {.padding_h = 4, .padding_w = 4}},
};

Tensor random_tensor(const Shape& shape, std::uint64_t seed) {
  Tensor t = Tensor::empty(shape);
  Philox random(seed);
  float* const data = t.mutable_host_data<float>();
  // A few bits, so that the values are the same in bf16.
  for (std::int64_t i = 0; i < t.numel(); ++i) data[i] = static_cast<float>(random.below(129)) / 64.0f - 1.0f;
  return t;
}

Tensor as(const Tensor& x, DType dtype) {
  if (!x.defined()) return x;
  const std::vector<float> values = x.to_vector<float>();
  if (dtype == DType::f64) {
    return Tensor::from_values(std::vector<double>(values.begin(), values.end()), x.shape());
  }
  if (dtype == DType::bf16) {
    Tensor y = Tensor::empty(x.shape(), dtype);
    for (std::size_t i = 0; i < values.size(); ++i) y.mutable_host_data<bfloat16>()[i] = bfloat16(values[i]);
    return y;
  }
  return x.clone();
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> values;
  switch (t.dtype()) {
    case DType::f32:
      for (const float v : t.to_vector<float>()) values.push_back(static_cast<double>(v));
      break;
    case DType::f64: values = t.to_vector<double>(); break;
    default:
      for (const bfloat16 v : t.to_vector<bfloat16>()) values.push_back(static_cast<double>(static_cast<float>(v)));
  }
  return values;
}

// Largest |value - expected| relative to |expected| plus the root mean square of all; NaN counts as infinite.
double distance(const Tensor& value, const Tensor& expected) {
  const std::vector<double> a = values_of(value), b = values_of(expected);
  double square = 1e-30, largest = 0;
  for (const double v : b) square += v * v;
  const double scale = std::sqrt(square / static_cast<double>(b.size()));
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]) / (scale + std::abs(b[i]));
    largest = difference <= largest ? largest : std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

double tolerance(DType dtype) { return dtype == DType::bf16 ? 1e-2 : 2e-5; }

// Memory that a kernel must overwrite.
Tensor stale(const Shape& shape, DType dtype) { return Tensor::full(shape, NAN, dtype); }

bool starts_with_ref(const std::string& name) { return name.starts_with("ref"); }

}  // namespace

TEST_CASE("every row of the forward convolution agrees with the plain loops") {
  for (const Geometry& g : kGeometries) {
    const ConvSizes s = sizes_of(g);
    const Shape y_shape{s.batch, s.out_h, s.out_w, s.out_c};
    const Tensor x = random_tensor({s.batch, s.in_h, s.in_w, s.in_c}, 1);
    const Tensor w = random_tensor({s.out_c, s.kernel_h, s.kernel_w, s.group_in_c()}, 2);
    const Tensor b = random_tensor({s.out_c}, 3);
    for (const bool relu : {false, true}) {
      const Tensor bias = relu ? b : Tensor();
      Tensor expected = Tensor::empty(y_shape, DType::f64);
      conv_forward_plain({s, as(x, DType::f64), as(w, DType::f64), as(bias, DType::f64), relu, expected});
      for (const auto& row : conv_forward_rows()) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          if (!row.supports(s, dtype)) continue;
          Tensor y = stale(y_shape, dtype);
          row.run({s, as(x, dtype), as(w, dtype), as(bias, dtype), relu, y});
          INFO(row.name << ' ' << dtype << ' ' << text(g) << " relu " << relu);
          CHECK(distance(y, expected) < tolerance(dtype));
        }
      }
    }
  }
}

TEST_CASE("every row of the data gradient of the convolution agrees with the plain loops") {
  for (const Geometry& g : kGeometries) {
    const ConvSizes s = sizes_of(g);
    const Shape x_shape{s.batch, s.in_h, s.in_w, s.in_c};
    const Tensor dy = random_tensor({s.batch, s.out_h, s.out_w, s.out_c}, 4);
    const Tensor w = random_tensor({s.out_c, s.kernel_h, s.kernel_w, s.group_in_c()}, 5);
    const Tensor mask = random_tensor(x_shape, 6);
    Tensor expected = Tensor::empty(x_shape, DType::f64);
    conv_backward_data_plain({s, as(dy, DType::f64), as(w, DType::f64), Tensor(), expected});
    Tensor masked = expected.clone();
    for (std::int64_t i = 0; i < masked.numel(); ++i) {
      if (!(mask.host_data<float>()[i] > 0)) masked.mutable_host_data<double>()[i] = 0;
    }
    for (const auto& row : conv_backward_data_rows()) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (!row.supports(s, dtype)) continue;
        INFO(row.name << ' ' << dtype << ' ' << text(g));
        Tensor dx = stale(x_shape, dtype);
        row.run({s, as(dy, dtype), as(w, dtype), Tensor(), dx});
        CHECK(distance(dx, expected) < tolerance(dtype));
        if (!row.applies_mask) continue;
        Tensor masked_dx = stale(x_shape, dtype);
        row.run({s, as(dy, dtype), as(w, dtype), as(mask, dtype), masked_dx});
        CHECK(distance(masked_dx, masked) < tolerance(dtype));
      }
    }
  }
}

TEST_CASE("every row of the weight gradient of the convolution agrees with the plain loops") {
  for (const Geometry& g : kGeometries) {
    const ConvSizes s = sizes_of(g);
    const Shape w_shape{s.out_c, s.kernel_h, s.kernel_w, s.group_in_c()};
    const Tensor x = random_tensor({s.batch, s.in_h, s.in_w, s.in_c}, 7);
    const Tensor dy = random_tensor({s.batch, s.out_h, s.out_w, s.out_c}, 8);
    const Tensor old_dw = random_tensor(w_shape, 9), old_db = random_tensor({s.out_c}, 10);
    for (const WriteMode mode : {WriteMode::store, WriteMode::add}) {
      const auto fresh = [mode](const Tensor& old, DType dtype) {
        return mode == WriteMode::add ? as(old, dtype) : stale(old.shape(), dtype);
      };
      Tensor expected = fresh(old_dw, DType::f64), expected_db = fresh(old_db, DType::f64);
      conv_backward_weight_plain({s, as(x, DType::f64), as(dy, DType::f64), expected, &expected_db, mode});
      for (const auto& row : conv_backward_weight_rows()) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          if (!row.supports(s, dtype)) continue;
          INFO(row.name << ' ' << dtype << ' ' << text(g) << " add " << (mode == WriteMode::add));
          Tensor dw = fresh(old_dw, dtype), db = fresh(old_db, dtype), dw_alone = fresh(old_dw, dtype);
          row.run({s, as(x, dtype), as(dy, dtype), dw, &db, mode});
          CHECK(distance(dw, expected) < tolerance(dtype));
          CHECK(distance(db, expected_db) < tolerance(dtype));
          row.run({s, as(x, dtype), as(dy, dtype), dw_alone, nullptr, mode});
          CHECK(values_of(dw_alone) == values_of(dw));
        }
      }
    }
  }
}

TEST_CASE("the rows give the same bits again, and nearly the same with other thread counts") {
  const ConvSizes s = sizes_of({33, 13, 13, 20, 50, 5, 5});
  const Tensor x = random_tensor({s.batch, s.in_h, s.in_w, s.in_c}, 1);
  const Tensor dy = random_tensor({s.batch, s.out_h, s.out_w, s.out_c}, 4);
  for (const auto& row : conv_backward_weight_rows()) {
    Tensor single = Tensor::empty({s.out_c, s.kernel_h, s.kernel_w, s.in_c});
    {
      const ThreadLimit limit(1);
      row.run({s, x, dy, single, nullptr, WriteMode::store});
    }
    for (const int threads : {1, 2, 3, 4}) {
      const ThreadLimit limit(threads);
      Tensor first = Tensor::empty_like(single), second = Tensor::empty_like(single);
      row.run({s, x, dy, first, nullptr, WriteMode::store});
      row.run({s, x, dy, second, nullptr, WriteMode::store});
      INFO(row.name << ' ' << threads << " threads");
      CHECK(values_of(first) == values_of(second));
      CHECK(distance(first, single) < 2e-5);
    }
  }
}

TEST_CASE("no convolution runs on a reference implementation of oneDNN, and common ones run on oneDNN") {
  const std::vector<Geometry> common = {
      {2, 28, 28, 1, 64, 7, 7, {.stride_h = 2, .stride_w = 2, .padding_h = 3, .padding_w = 3}},
      {2, 7, 7, 64, 64, 3, 3, {.padding_h = 1, .padding_w = 1}},
      {2, 7, 7, 64, 128, 3, 3, {.stride_h = 2, .stride_w = 2, .padding_h = 1, .padding_w = 1}},
      {2, 7, 7, 64, 128, 1, 1, {.stride_h = 2, .stride_w = 2}},
      {2, 4, 4, 512, 512, 3, 3, {.padding_h = 1, .padding_w = 1}},
      {2, 12, 12, 6, 16, 5, 5},
      {2, 13, 13, 20, 50, 5, 5},
      {2, 8, 8, 32, 32, 3, 3, {.padding_h = 1, .padding_w = 1, .groups = 32}},
  };
  for (const Geometry& g : common) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!dnnl_has_dtype(dtype)) continue;
      INFO(dtype << ' ' << text(g));
      CHECK(conv_forward_dnnl_supports(sizes_of(g), dtype));
      CHECK(conv_backward_data_dnnl_supports(sizes_of(g), dtype));
      CHECK(conv_backward_weight_dnnl_supports(sizes_of(g), dtype));
    }
  }
  const std::vector<std::string> names = dnnl_implementations();
  CHECK(names.size() >= 2);
  CHECK(std::none_of(names.begin(), names.end(), starts_with_ref));
}
