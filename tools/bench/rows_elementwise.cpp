// Element-wise functions of one, two and three tensors.
#include "reference/reference.h"
#include "tools/bench/op_row.h"

namespace heddle::tools::bench {
namespace {

using Tensors = std::vector<Tensor>;

enum class Needs { nothing, x, y };

// A function of one tensor with its parameters, and ranges of operands and results in which it is tame.
struct Unary {
  const char* name;
  UnaryOp op;
  double a = 0, b = 0;
  double low = -1, high = 1;        // of x
  Needs backward = Needs::nothing;  // what its gradient reads; those that read nothing have no row
  double y_low = -1, y_high = 1;    // of y, where the gradient reads it
};

constexpr Unary kUnary[] = {
    {.name = "copy", .op = UnaryOp::copy},
    {.name = "neg", .op = UnaryOp::neg},
    {.name = "abs", .op = UnaryOp::abs, .backward = Needs::x},
    {.name = "exp", .op = UnaryOp::exp, .backward = Needs::y, .y_low = 0.4, .y_high = 2.7},
    {.name = "log", .op = UnaryOp::log, .low = 0.1, .high = 3, .backward = Needs::x},
    {.name = "sqrt", .op = UnaryOp::sqrt, .low = 0.1, .high = 3, .backward = Needs::y, .y_low = 0.3, .y_high = 1.7},
    {.name = "relu", .op = UnaryOp::relu, .backward = Needs::y},
    {.name = "sigmoid", .op = UnaryOp::sigmoid, .low = -4, .high = 4, .backward = Needs::y, .y_low = 0, .y_high = 1},
    {.name = "tanh", .op = UnaryOp::tanh, .low = -3, .high = 3, .backward = Needs::y},
    {.name = "gelu", .op = UnaryOp::gelu, .low = -3, .high = 3, .backward = Needs::x},
    {.name = "pow_scalar", .op = UnaryOp::pow_scalar, .a = 1.5, .low = 0.1, .high = 3, .backward = Needs::x},
    {.name = "add_scalar", .op = UnaryOp::add_scalar, .a = 0.5},
    {.name = "mul_scalar", .op = UnaryOp::mul_scalar, .a = 0.5},
    {.name = "clamp", .op = UnaryOp::clamp, .a = -0.5, .b = 0.5, .backward = Needs::x},
};

struct Binary {
  const char* name;
  BinaryOp op;
  double a_low = -1, a_high = 1, b_low = -1, b_high = 1;
};

constexpr Binary kBinary[] = {
    {.name = "add", .op = BinaryOp::add},
    {.name = "sub", .op = BinaryOp::sub},
    {.name = "mul", .op = BinaryOp::mul},
    {.name = "div", .op = BinaryOp::div, .b_low = 0.5, .b_high = 2},
    {.name = "pow", .op = BinaryOp::pow, .a_low = 0.1, .a_high = 3},
    {.name = "maximum", .op = BinaryOp::maximum},
    {.name = "minimum", .op = BinaryOp::minimum},
    {.name = "eq", .op = BinaryOp::eq},
    {.name = "ne", .op = BinaryOp::ne},
    {.name = "lt", .op = BinaryOp::lt},
    {.name = "le", .op = BinaryOp::le},
    {.name = "gt", .op = BinaryOp::gt},
    {.name = "ge", .op = BinaryOp::ge},
};

Sizes numel_sizes() { return {{"n", 4194304}}; }

Shape numel_shape(const char* op, const Sizes& s) {
  require_sizes(s["n"] > 0, op, s, "n must be above 0");
  return {s["n"]};
}

OpRow unary_row(const Unary& u) {
  return {u.name, "element-wise", numel_sizes(), [u](const Sizes& s, DType dtype) -> Case {
            const Shape shape = numel_shape(u.name, s);
            return {
                .inputs = {{shape, dtype, u.low, u.high}},
                .outputs = {{shape, dtype}},
                .call = [u](Backend& b, const Tensors& in, Tensors& out) { b.unary(u.op, in[0], u.a, u.b, out[0]); },
                .reference = [u](const Arrays& in) -> Arrays { return {reference::unary(u.op, in[0], u.a, u.b)}; }};
          }};
}

OpRow unary_backward_row(const Unary& u) {
  return {std::string(u.name) + "_backward", "its gradient", numel_sizes(), [u](const Sizes& s, DType dtype) -> Case {
            const Shape shape = numel_shape(u.name, s);
            const bool reads_x = u.backward == Needs::x;
            return {.inputs = {{.shape = shape, .dtype = dtype, .low = u.low, .high = u.high, .undefined = !reads_x},
                               {.shape = shape, .dtype = dtype, .low = u.y_low, .high = u.y_high, .undefined = reads_x},
                               {shape, dtype}},
                    .outputs = {{shape, dtype}},
                    .call =
                        [u](Backend& b, const Tensors& in, Tensors& out) {
                          b.unary_backward(u.op, in[0], in[1], in[2], u.a, u.b, out[0], WriteMode::store);
                        },
                    .reference = [u](const Arrays& in) -> Arrays {
                      return {reference::unary_backward(u.op, in[0], in[1], in[2], u.a, u.b)};
                    }};
          }};
}

Case binary_case(const Binary& binary, const Shape& a, const Shape& b, const Shape& y, DType dtype) {
  return {.inputs = {{a, dtype, binary.a_low, binary.a_high}, {b, dtype, binary.b_low, binary.b_high}},
          .outputs = {{y, is_comparison(binary.op) ? DType::u8 : dtype}},
          .call = [op = binary.op](Backend& backend, const Tensors& in,
                                   Tensors& out) { backend.binary(op, in[0], in[1], out[0]); },
          .reference = [op = binary.op](const Arrays& in) -> Arrays { return {reference::binary(op, in[0], in[1])}; }};
}

OpRow binary_row(const Binary& binary) {
  return {binary.name, "element-wise", numel_sizes(), [binary](const Sizes& s, DType dtype) {
            const Shape shape = numel_shape(binary.name, s);
            return binary_case(binary, shape, shape, shape, dtype);
          }};
}

Case add_broadcast(const Sizes& s, DType dtype) {
  require_sizes(s["rows"] > 0 && s["columns"] > 0, "add_broadcast", s, "rows and columns must be above 0");
  const Shape shape{s["rows"], s["columns"]};
  return binary_case(kBinary[0], shape, {s["columns"]}, shape, dtype);
}

Case axpy(const Sizes& s, DType dtype) {
  const Shape shape = numel_shape("axpy", s);
  // So small a factor that y stays as it is over many calls.
  constexpr double kAlpha = 1e-3;
  return {.inputs = {{shape, dtype}},
          .outputs = {{.shape = shape, .dtype = dtype, .updated = true}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.axpy(kAlpha, in[0], out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::axpy(kAlpha, in[0], in[1])}; },
          .flops = 2 * static_cast<double>(s["n"])};
}

Case where(const Sizes& s, DType dtype) {
  const Shape shape = numel_shape("where", s);
  return {.inputs = {{shape, DType::u8, 0, 1}, {shape, dtype}, {shape, dtype}},
          .outputs = {{shape, dtype}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.where(in[0], in[1], in[2], out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::where(in[0], in[1], in[2])}; }};
}

}  // namespace

void add_elementwise_rows(std::vector<OpRow>& rows) {
  for (const Unary& u : kUnary) {
    rows.push_back(unary_row(u));
    if (u.backward != Needs::nothing) rows.push_back(unary_backward_row(u));
  }
  for (const Binary& binary : kBinary) rows.push_back(binary_row(binary));
  rows.push_back({"add_broadcast", "a row added to every row", {{"rows", 65536}, {"columns", 64}}, add_broadcast});
  rows.push_back({"axpy", "y += alpha x", numel_sizes(), axpy});
  rows.push_back({"where", "chooses between two tensors", numel_sizes(), where});
}

}  // namespace heddle::tools::bench
