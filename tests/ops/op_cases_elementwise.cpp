// Rows of element-wise ops, reductions, products and rearrangements.
#include <limits>

#include "engine/ops/ops.h"
#include "reference/reference.h"
#include "tests/ops/op_cases.h"

namespace heddle::testing {
namespace {

using reference::Array;
using reference::Arrays;
using Variables = std::vector<Variable>;

using BinaryFunction = Variable (*)(const Variable&, const Variable&);
using UnaryFunction = Variable (*)(const Variable&);

void add_binary(std::vector<OpCase>& rows) {
  struct Row {
    const char* name;
    BinaryFunction call;
    BinaryOp op;
    double low, high;
  };
  const Row ops[] = {
      {"add", ops::add, BinaryOp::add, -2, 2},
      {"sub", ops::sub, BinaryOp::sub, -2, 2},
      {"mul", ops::mul, BinaryOp::mul, -2, 2},
      {"div", ops::div, BinaryOp::div, 0.5, 2},
      {"pow", ops::pow, BinaryOp::pow, 0.5, 2},
      {"maximum", ops::maximum, BinaryOp::maximum, -2, 2},
      {"minimum", ops::minimum, BinaryOp::minimum, -2, 2},
      {"eq", ops::eq, BinaryOp::eq, -2, 2},
      {"ne", ops::ne, BinaryOp::ne, -2, 2},
      {"lt", ops::lt, BinaryOp::lt, -2, 2},
      {"le", ops::le, BinaryOp::le, -2, 2},
      {"gt", ops::gt, BinaryOp::gt, -2, 2},
      {"ge", ops::ge, BinaryOp::ge, -2, 2},
  };
  const struct {
    Shape a, b, y;
  } shapes[] = {{{3, 5}, {3, 5}, {3, 5}},    {{3, 5}, {5}, {3, 5}},
                {{3, 5}, {3, 1}, {3, 5}},    {{}, {3, 5}, {3, 5}},
                {{1, 5}, {3, 1}, {3, 5}},    {{2, 1, 4}, {3, 1}, {2, 3, 4}},
                {{2, 3, 4}, {1}, {2, 3, 4}}, {{4}, {2, 3, 1, 4}, {2, 3, 1, 4}}};
  for (const Row& row : ops) {
    for (const auto& s : shapes) {
      rows.push_back({.name = join_text(row.name, " ", s.a, " ", s.b),
                      .inputs = {random_input(s.a, row.low, row.high), random_input(s.b, row.low, row.high)},
                      .shape = s.y,
                      .call = [call = row.call](const Variables& in) { return call(in[0], in[1]); },
                      .reference = [op = row.op](const Arrays& in) { return reference::binary(op, in[0], in[1]); },
                      .differentiable = !is_comparison(row.op)});
    }
  }
}

void add_unary(std::vector<OpCase>& rows) {
  struct Row {
    const char* name;
    std::function<Variable(const Variable&)> call;
    UnaryOp op;
    double low, high, a = 0, b = 0;
  };
  const auto plain = [](UnaryFunction f) { return std::function<Variable(const Variable&)>(f); };
  const Row ops[] = {
      {"neg", plain(ops::neg), UnaryOp::neg, -2, 2},
      {"abs", plain(ops::abs), UnaryOp::abs, -2, 2},
      {"exp", plain(ops::exp), UnaryOp::exp, -2, 2},
      {"log", plain(ops::log), UnaryOp::log, 0.5, 4},
      {"sqrt", plain(ops::sqrt), UnaryOp::sqrt, 0.5, 4},
      {"relu", plain(ops::relu), UnaryOp::relu, -2, 2},
      {"sigmoid", plain(ops::sigmoid), UnaryOp::sigmoid, -4, 4},
      {"tanh", plain(ops::tanh), UnaryOp::tanh, -2, 2},
      {"gelu", plain(ops::gelu), UnaryOp::gelu, -3, 3},
      {"pow 2", [](const Variable& x) { return ops::pow(x, 2.0); }, UnaryOp::pow_scalar, -2, 2, 2},
      {"pow -1.5", [](const Variable& x) { return ops::pow(x, -1.5); }, UnaryOp::pow_scalar, 0.5, 2, -1.5},
      {"clamp", [](const Variable& x) { return ops::clamp(x, -0.5, 1); }, UnaryOp::clamp, -2, 2, -0.5, 1},
      {"add scalar", [](const Variable& x) { return x + 1.5; }, UnaryOp::add_scalar, -2, 2, 1.5},
      {"scalar add", [](const Variable& x) { return 1.5 + x; }, UnaryOp::add_scalar, -2, 2, 1.5},
      {"sub scalar", [](const Variable& x) { return x - 1.5; }, UnaryOp::add_scalar, -2, 2, -1.5},
      {"mul scalar", [](const Variable& x) { return x * -1.5; }, UnaryOp::mul_scalar, -2, 2, -1.5},
      {"div power of two", [](const Variable& x) { return x / 4; }, UnaryOp::mul_scalar, -2, 2, 0.25},
      {"div scalar", [](const Variable& x) { return x / 3; }, UnaryOp::mul_scalar, -2, 2, 1.0 / 3},
      {"scalar div", [](const Variable& x) { return 1.0 / x; }, UnaryOp::pow_scalar, 0.5, 2, -1},
  };
  for (const Row& row : ops) {
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 5}}) {
      rows.push_back({.name = join_text(row.name, " ", shape),
                      .inputs = {random_input(shape, row.low, row.high)},
                      .shape = shape,
                      .call = [call = row.call](const Variables& in) { return call(in[0]); },
                      .reference = [=](const Arrays& in) { return reference::unary(row.op, in[0], row.a, row.b); }});
    }
  }
  rows.push_back({.name = "where",
                  .inputs = {integer_input({3, 1}, DType::u8, 0, 1), random_input({3, 5}), random_input({5})},
                  .shape = {3, 5},
                  .call = [](const Variables& in) { return ops::where(in[0], in[1], in[2]); },
                  .reference = [](const Arrays& in) { return reference::where(in[0], in[1], in[2]); }});
}

void add_reductions(std::vector<OpCase>& rows) {
  const Shape shape{2, 3, 4};
  const auto add = [&](const char* name, const Shape& y, std::uint32_t mask, ReduceKind kind,
                       std::function<Variable(const Variable&)> call) {
    rows.push_back({.name = name,
                    .inputs = {random_input(shape)},
                    .shape = y,
                    .call = [call](const Variables& in) { return call(in[0]); },
                    .reference = [=](const Arrays& in) { return reference::reduce(kind, in[0], mask); }});
  };
  add("sum", {}, 7, ReduceKind::sum, [](const Variable& x) { return ops::sum(x); });
  add("mean", {}, 7, ReduceKind::mean, [](const Variable& x) { return ops::mean(x); });
  add("max", {}, 7, ReduceKind::max, [](const Variable& x) { return ops::max(x); });
  add("sum first", {3, 4}, 1, ReduceKind::sum, [](const Variable& x) { return ops::sum(x, {0}); });
  add("sum middle kept", {2, 1, 4}, 2, ReduceKind::sum, [](const Variable& x) { return ops::sum(x, {1}, true); });
  add("sum outer", {3}, 5, ReduceKind::sum, [](const Variable& x) { return ops::sum(x, {-1, 0}); });
  add("mean last two kept", {2, 1, 1}, 6, ReduceKind::mean, [](const Variable& x) {
    return ops::mean(x, {1, 2}, true);
  });
  add("max last", {2, 3}, 4, ReduceKind::max, [](const Variable& x) { return ops::max(x, -1).values; });
  add("max middle kept", {2, 1, 4}, 2, ReduceKind::max, [](const Variable& x) { return ops::max(x, 1, true).values; });
}

void add_matmul(std::vector<OpCase>& rows) {
  const auto add = [&](const char* name, const Shape& a, const Shape& b, const Shape& y, MatmulParams params) {
    rows.push_back({.name = name,
                    .inputs = {random_input(a), random_input(b)},
                    .shape = y,
                    .call = [=](const Variables& in) { return ops::matmul(in[0], in[1], params); },
                    .reference = [=](const Arrays& in) { return reference::matmul(in[0], in[1], params); }});
  };
  add("matmul", {3, 4}, {4, 5}, {3, 5}, {});
  add("matmul ta", {4, 3}, {4, 5}, {3, 5}, {.transpose_a = true});
  add("matmul tb", {3, 4}, {5, 4}, {3, 5}, {.transpose_b = true});
  add("matmul ta tb", {4, 3}, {5, 4}, {3, 5}, {.transpose_a = true, .transpose_b = true});
  add("matmul batch", {2, 3, 4}, {2, 4, 5}, {2, 3, 5}, {});
  add("matmul batch ta", {2, 4, 3}, {2, 4, 5}, {2, 3, 5}, {.transpose_a = true});
  add("matmul batch tb", {2, 3, 4}, {2, 5, 4}, {2, 3, 5}, {.transpose_b = true});
  add("matmul batch ta tb", {2, 4, 3}, {2, 5, 4}, {2, 3, 5}, {.transpose_a = true, .transpose_b = true});
  // Several leading dimensions, or one b for all, are the same product in other shapes.
  rows.push_back({.name = "matmul two leading dimensions",
                  .inputs = {random_input({2, 1, 3, 4}), random_input({2, 1, 4, 5})},
                  .shape = {2, 1, 3, 5},
                  .call = [](const Variables& in) { return ops::matmul(in[0], in[1]); },
                  .reference =
                      [](const Arrays& in) {
                        return reference::matmul(Array({2, 3, 4}, in[0].values), Array({2, 4, 5}, in[1].values), {});
                      }});
  for (const bool transposed : {false, true}) {
    rows.push_back({.name = transposed ? "matmul shared b transposed" : "matmul shared b",
                    .inputs = {random_input({2, 3, 4}), random_input(transposed ? Shape{5, 4} : Shape{4, 5})},
                    .shape = {2, 3, 5},
                    .call = [=](const Variables& in) { return ops::matmul(in[0], in[1], {.transpose_b = transposed}); },
                    .reference =
                        [=](const Arrays& in) {
                          return reference::matmul(Array({6, 4}, in[0].values), in[1], {.transpose_b = transposed});
                        }});
  }
}

void add_rearrangements(std::vector<OpCase>& rows) {
  const auto add = [&](const std::string& name, std::vector<ParityInput> inputs, const Shape& y,
                       std::function<Variable(const Variables&)> call, std::function<Array(const Arrays&)> expected) {
    rows.push_back({name, std::move(inputs), y, std::move(call), std::move(expected)});
  };
  const auto same = [](const Arrays& in) { return in[0]; };
  add(
      "reshape", {random_input({2, 6})}, {3, 4},
      [](const Variables& in) {
        return ops::reshape(in[0], {3, -1});
      },
      same);
  add(
      "flatten", {random_input({2, 3, 4})}, {2, 12}, [](const Variables& in) { return ops::flatten(in[0]); }, same);
  add(
      "permute", {random_input({2, 3, 4})}, {4, 2, 3},
      [](const Variables& in) {
        return ops::permute(in[0], {2, 0, -2});
      },
      [](const Arrays& in) {
        return reference::permute(in[0], std::vector<int>{2, 0, 1});
      });
  add(
      "transpose", {random_input({2, 3, 4})}, {4, 3, 2},
      [](const Variables& in) { return ops::transpose(in[0], 0, -1); },
      [](const Arrays& in) {
        return reference::permute(in[0], std::vector<int>{2, 1, 0});
      });
  for (const int dim : {0, 1, 2}) {
    Shape shapes[3];
    std::int64_t total = 0;
    for (int i = 0; i < 3; ++i) {
      std::vector<std::int64_t> dims{2, 3, 4};
      dims[static_cast<std::size_t>(dim)] = i + 1;
      shapes[i] = Shape(dims);
      total += i + 1;
    }
    std::vector<std::int64_t> dims{2, 3, 4};
    dims[static_cast<std::size_t>(dim)] = total;
    const Shape y(dims);
    add(
        join_text("concat ", dim), {random_input(shapes[0]), random_input(shapes[1]), random_input(shapes[2])}, y,
        [=](const Variables& in) { return ops::concat(in, dim); },
        [=](const Arrays& in) {
          Array joined(y);
          std::int64_t begin = 0;
          for (const Array& part : in) {
            joined = reference::copy_range(part, 0, joined, begin, dim, part.dim(dim), WriteMode::store);
            begin += part.dim(dim);
          }
          return joined;
        });
    dims[static_cast<std::size_t>(dim)] = 1;
    const Shape slice(dims);
    add(
        join_text("narrow ", dim), {random_input({2, 3, 4})}, slice,
        [=](const Variables& in) { return ops::narrow(in[0], dim, 1, 1); },
        [=](const Arrays& in) { return reference::copy_range(in[0], 1, Array(slice), 0, dim, 1, WriteMode::store); });
  }
  add(
      "index_select", {random_input({4, 3}), exact_input(Array({5}, {3, 0, 3, 1, 3}), DType::i64)}, {5, 3},
      [](const Variables& in) { return ops::index_select(in[0], in[1].data()); },
      [](const Arrays& in) { return reference::index_select(in[0], in[1]); });
  add(
      "index_select columns", {random_input({2, 4}), exact_input(Array({3}, {3, 0, 3}), DType::i64)}, {2, 3},
      [](const Variables& in) { return ops::index_select(in[0], in[1].data(), 1); },
      [](const Arrays& in) {
        return Array({2, 3}, {in[0][3], in[0][0], in[0][3], in[0][7], in[0][4], in[0][7]});
      });
  for (const int dim : {0, 1}) {
    const Shape shape = dim == 0 ? Shape{5, 4} : Shape{3, 5};
    add(
        join_text("gather ", dim), {random_input({3, 4}), integer_input(shape, DType::i64, 0, 2)}, shape,
        [=](const Variables& in) { return ops::gather(in[0], dim, in[1].data()); },
        [=](const Arrays& in) { return reference::gather(in[0], dim, in[1]); });
  }
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> rows;
  add_binary(rows);
  add_unary(rows);
  add_reductions(rows);
  add_matmul(rows);
  add_rearrangements(rows);
  return rows;
}

}  // namespace heddle::testing
