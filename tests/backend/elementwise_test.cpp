// Element-wise primitives against the references, on every device.
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
const std::vector<DType> kAll = {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8};
const std::vector<Shape> kShapes = {{0}, {}, {1}, {7}, {3, 5, 0}, {33, 31}, {2, 3, 5, 7}, {40000}};

struct UnaryRow {
  const char* name;
  UnaryOp op;
  double low, high;  // of the operand
  double a = 0, b = 0;
};
const UnaryRow kUnary[] = {
    {"copy", UnaryOp::copy, -3, 3},
    {"neg", UnaryOp::neg, -3, 3},
    {"abs", UnaryOp::abs, -3, 3},
    {"exp", UnaryOp::exp, -3, 3},
    {"log", UnaryOp::log, 0.1, 9},
    {"sqrt", UnaryOp::sqrt, 0.1, 9},
    {"relu", UnaryOp::relu, -3, 3},
    {"sigmoid", UnaryOp::sigmoid, -9, 9},
    {"tanh", UnaryOp::tanh, -4, 4},
    {"gelu", UnaryOp::gelu, -4, 4},
    {"pow 2", UnaryOp::pow_scalar, -3, 3, 2},
    {"pow 3", UnaryOp::pow_scalar, -2, 2, 3},
    {"pow -0.5", UnaryOp::pow_scalar, 0.5, 3, -0.5},
    {"pow 0", UnaryOp::pow_scalar, -3, 3, 0},
    {"add_scalar", UnaryOp::add_scalar, -3, 3, 1.5},
    {"mul_scalar", UnaryOp::mul_scalar, -3, 3, -1.5},
    {"clamp", UnaryOp::clamp, -3, 3, -1, 2},
};

}  // namespace

TEST_CASE("unary operations agree with the reference") {
  for (const UnaryRow& u : kUnary) {
    for (const Shape& shape : kShapes) {
      expect_parity_everywhere(
          {.name = join_text(u.name, " ", shape),
           .inputs = {random_input(shape, u.low, u.high)},
           .outputs = {{shape}},
           .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).unary(u.op, in[0], u.a, u.b, out[0]); },
           .reference = [&](const Arrays& in) { return Arrays{reference::unary(u.op, in[0], u.a, u.b)}; },
           .dtypes = kFloats});
    }
  }
}

TEST_CASE("gradients of unary operations agree with the reference") {
  for (const UnaryRow& u : kUnary) {
    for (const Shape& shape : kShapes) {
      const Array x = random_array(shape, u.low, u.high, 5);
      expect_parity_everywhere(
          {.name = join_text(u.name, " ", shape),
           .inputs = {exact_input(x), exact_input(reference::unary(u.op, x, u.a, u.b)), random_input(shape)},
           .outputs = {{shape}},
           .call =
               [&](auto& in, auto& out, WriteMode mode) {
                 backend_of(out).unary_backward(u.op, in[0], in[1], in[2], u.a, u.b, out[0], mode);
               },
           .reference =
               [&](const Arrays& in) { return Arrays{reference::unary_backward(u.op, in[0], in[1], in[2], u.a, u.b)}; },
           .write_modes = true,
           .dtypes = kFloats});
    }
  }
}

TEST_CASE("unary operations may write over their operand") {
  for (const Device device : test_devices()) {
    const DType dtype = device.is_cpu() ? DType::f64 : DType::f32;
    for (const UnaryRow& u : kUnary) {
      Tensor t = tensor_of(random_array({1000}, u.low, u.high), dtype, device);
      const Array x = array_of(t);
      backend_for(device).unary(u.op, t, u.a, u.b, t);
      CHECK(compare(array_of(t), reference::unary(u.op, x, u.a, u.b), tolerance_of(dtype)) == "");
    }
  }
}

TEST_CASE("integers have the unary operations that stay whole") {
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    const double lowest = dtype == DType::u8 ? 0 : -5;
    for (const UnaryOp op :
         {UnaryOp::copy, UnaryOp::abs, UnaryOp::relu, UnaryOp::add_scalar, UnaryOp::mul_scalar, UnaryOp::clamp}) {
      expect_parity_everywhere(
          {.name = join_text("integer unary ", static_cast<int>(op)),
           .inputs = {random_input({57}, lowest, 9)},
           .outputs = {{{57}}},
           .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).unary(op, in[0], 2, 6, out[0]); },
           .reference = [&](const Arrays& in) { return Arrays{reference::unary(op, in[0], 2, 6)}; },
           .dtypes = {dtype}});
    }
    for (const Device device : test_devices()) {
      Backend& backend = backend_for(device);
      Tensor t = Tensor::zeros({3}, dtype, device);
      CHECK_THROWS_WITH(backend.unary(UnaryOp::exp, t, 0, 0, t), Catch::Contains(name_of(dtype)));
      CHECK_THROWS_AS(backend.binary(BinaryOp::div, t, t, t), NotSupported);
    }
  }
  for (const Device device : test_devices()) {
    Tensor largest = Tensor::full({1}, 2147483647, DType::i32, device);
    backend_for(device).unary(UnaryOp::add_scalar, largest, 1, 0, largest);
    CHECK(largest.item() == -2147483648.0);
  }
}

TEST_CASE("binary operations broadcast both ways") {
  const std::pair<Shape, Shape> pairs[] = {{{0}, {0}},
                                           {{}, {}},
                                           {{5}, {}},
                                           {{}, {7, 3}},
                                           {{4, 5}, {5}},
                                           {{5}, {4, 5}},
                                           {{4, 5}, {4, 1}},
                                           {{4, 1}, {1, 5}},
                                           {{4, 1}, {4, 5}},
                                           {{2, 3, 4, 5}, {2, 1, 4, 1}},
                                           {{3, 1, 5}, {4, 1}},
                                           {{1, 0, 3}, {3}},
                                           {{200, 201}, {201}},
                                           {{129, 1}, {301}},
                                           {{2, 1, 3, 1, 2}, {4, 1, 5, 1}},
                                           {{40000}, {40000}},
                                           {{40000}, {1}},
                                           {{1, 1}, {40001}},
                                           {{6, 1, 1}, {6, 4, 7}}};
  for (const auto& [a, b] : pairs) {
    for (int i = 0; i <= static_cast<int>(BinaryOp::ge); ++i) {
      const auto op = static_cast<BinaryOp>(i);
      const Shape y = reference::broadcast_shape(a, b);
      const bool compares = is_comparison(op), floats_only = op == BinaryOp::div || op == BinaryOp::pow;
      // Whole operands, so that equal ones meet and bf16 comparisons are exact.
      expect_parity_everywhere(
          {.name = join_text("binary ", i, " ", a, " ", b),
           .inputs = {exact_input(integer_array(a, 1, 5, 3)), exact_input(integer_array(b, 1, 4, 4))},
           .outputs = {{y, compares ? std::optional(DType::u8) : std::nullopt}},
           .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).binary(op, in[0], in[1], out[0]); },
           .reference = [&](const Arrays& in) { return Arrays{reference::binary(op, in[0], in[1])}; },
           .dtypes = floats_only           ? kFloats
                     : op == BinaryOp::sub ? std::vector{DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64}
                                           : kAll});
    }
  }
}

TEST_CASE("binary operations may write over an operand of the same shape") {
  for (const Device device : test_devices()) {
    const Array a = random_array({50, 40}), b = random_array({40}, 1, 2);
    Tensor ta = tensor_of(a, DType::f32, device);
    const Tensor tb = tensor_of(b, DType::f32, device);
    backend_for(device).binary(BinaryOp::div, ta, tb, ta);
    CHECK(compare(array_of(ta), reference::binary(BinaryOp::div, a, b), 1e-5) == "");
  }
}

TEST_CASE("a NaN on either side wins maximum, minimum, relu and clamp") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Device device : test_devices()) {
    Backend& backend = backend_for(device);
    const Tensor a = tensor_of(Array({3}, {nan, 1, 1}), DType::f32, device);
    const Tensor b = tensor_of(Array({3}, {1, nan, 2}), DType::f32, device);
    Tensor y = Tensor::empty({3}, DType::f32, device);
    backend.binary(BinaryOp::maximum, a, b, y);
    CHECK(compare(array_of(y), Array({3}, {nan, nan, 2}), 0) == "");
    backend.binary(BinaryOp::minimum, a, b, y);
    CHECK(compare(array_of(y), Array({3}, {nan, nan, 1}), 0) == "");
    backend.unary(UnaryOp::relu, a, 0, 0, y);
    CHECK(compare(array_of(y), Array({3}, {nan, 1, 1}), 0) == "");
    backend.unary(UnaryOp::clamp, a, 0, 0.5, y);
    CHECK(compare(array_of(y), Array({3}, {nan, 0.5, 0.5}), 0) == "");
  }
}

TEST_CASE("where chooses with all three operands broadcast") {
  const Shape shapes[][3] = {{{4, 5}, {4, 5}, {4, 5}}, {{5}, {4, 1}, {}},   {{4, 1}, {5}, {4, 5}},
                             {{0, 3}, {3}, {1, 3}},    {{3, 1, 2}, {}, {}}, {{30000}, {1}, {30000}}};
  for (const auto& s : shapes) {
    const Shape y = reference::broadcast_shape(s[0], reference::broadcast_shape(s[1], s[2]));
    expect_parity_everywhere(
        {.name = join_text("where ", s[0], s[1], s[2]),
         .inputs = {integer_input(s[0], DType::u8, 0, 2), random_input(s[1], 0, 9), random_input(s[2], 0, 9)},
         .outputs = {{y}},
         .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).where(in[0], in[1], in[2], out[0]); },
         .reference = [&](const Arrays& in) { return Arrays{reference::where(in[0], in[1], in[2])}; },
         .dtypes = kAll});
  }
}

TEST_CASE("axpy adds a multiple") {
  for (const Shape& shape : kShapes) {
    expect_parity_everywhere(
        {.name = join_text("axpy ", shape),
         .inputs = {random_input(shape)},
         .outputs = {{shape, {}, random_array(shape, -1, 1, 9)}},
         .call = [&](auto& in, auto& out, WriteMode) { backend_of(out).axpy(-0.75, in[0], out[0]); },
         .reference = [&](const Arrays& in) { return Arrays{reference::axpy(-0.75, in[0], in[1])}; },
         .dtypes = kFloats});
  }
}

TEST_CASE("fill writes one value") {
  for (const Shape& shape : kShapes) {
    expect_parity_everywhere({.name = join_text("fill ", shape),
                              .outputs = {{shape}},
                              .call = [&](auto&, auto& out, WriteMode) { backend_of(out).fill(out[0], 3); },
                              .reference = [&](const Arrays&) { return Arrays{Array(shape, 3)}; },
                              .dtypes = kAll});
  }
}

TEST_CASE("casts between all dtypes truncate towards zero") {
  for (const Device device : test_devices()) {
    for (const DType from : kAll) {
      for (const DType to : kAll) {
        if (!holds(device, from) || !holds(device, to)) continue;
        // Long enough for whole packs and a rest.
        const bool negative = from != DType::u8 && to != DType::u8;
        Array x({43});
        for (std::int64_t i = 0; i < x.numel(); ++i) {
          x[i] = std::vector<double>{0, 1.75, 2, negative ? -2.75 : 3.0, 100}[static_cast<std::size_t>(i % 5)];
        }
        const auto truncated = [](const Array& a) {
          Array y = a;
          for (double& v : y.values) v = std::trunc(v);
          return y;
        };
        const Array stored = is_floating(from) ? x : truncated(x);
        Tensor y = Tensor::empty(x.shape, to, device);
        backend_for(device).cast(tensor_of(stored, from, device), y);
        INFO(device << ", " << from << " to " << to);
        CHECK(compare(array_of(y), is_floating(to) ? stored : truncated(stored), 0) == "");
      }
    }
  }
}

TEST_CASE("a cast of what an integer cannot hold gives its nearest value") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const Device device : test_devices()) {
    const Tensor x = tensor_of(Array({5}, {inf, -inf, nan, 1e30, -1}), DType::f32, device);
    const auto cast_to = [&](DType dtype) {
      Tensor y = Tensor::empty({5}, dtype, device);
      backend_for(device).cast(x, y);
      return y;
    };
    using L64 = std::numeric_limits<std::int64_t>;
    using L32 = std::numeric_limits<std::int32_t>;
    CHECK(cast_to(DType::i64).to_vector<std::int64_t>() ==
          std::vector<std::int64_t>{L64::max(), L64::min(), 0, L64::max(), -1});
    CHECK(cast_to(DType::i32).to_vector<std::int32_t>() ==
          std::vector<std::int32_t>{L32::max(), L32::min(), 0, L32::max(), -1});
    CHECK(cast_to(DType::u8).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{255, 0, 0, 255, 0});
  }
}
