// Data movement, and reductions.
#include "reference/reference.h"
#include "tools/bench/op_row.h"

namespace heddle::tools::bench {
namespace {

using Tensors = std::vector<Tensor>;

void require_positive(const char* op, const Sizes& s) {
  for (const auto& [name, value] : s.values()) {
    require_sizes(value > 0 || name == "dim", op, s, "all sizes must be above 0");
  }
}

double as_double(std::int64_t value) { return static_cast<double>(value); }
double nbytes_each(DType dtype) { return static_cast<double>(size_of(dtype)); }

Case fill(const Sizes& s, DType dtype) {
  require_positive("fill", s);
  const Shape shape{s["n"]};
  return {.inputs = {},
          .outputs = {{shape, dtype}},
          .call = [](Backend& b, const Tensors&, Tensors& out) { b.fill(out[0], 0.5); },
          .reference = [=](const Arrays&) -> Arrays { return {Array(shape, 0.5)}; }};
}

// Between f32 and bf16, away from the dtype of the run.
Case cast(const Sizes& s, DType dtype) {
  require_positive("cast", s);
  const Shape shape{s["n"]};
  return {.inputs = {{shape, dtype}},
          .outputs = {{shape, dtype == DType::f32 ? DType::bf16 : DType::f32}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.cast(in[0], out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {in[0]}; }};
}

Case permute(const Sizes& s, DType dtype) {
  require_positive("permute", s);
  static constexpr int kPerm[] = {0, 3, 1, 2};
  return {.inputs = {{{s["n"], s["h"], s["w"], s["c"]}, dtype}},
          .outputs = {{{s["n"], s["c"], s["h"], s["w"]}, dtype}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.permute(in[0], kPerm, out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::permute(in[0], kPerm)}; }};
}

// The left half of wider rows, as a concatenation writes it.
Case copy_range(const Sizes& s, DType dtype) {
  require_positive("copy_range", s);
  const std::int64_t columns = s["columns"];
  const Shape y{s["rows"], 2 * columns};
  return {.inputs = {{{s["rows"], columns}, dtype}},
          .outputs = {{.shape = y, .dtype = dtype, .updated = true}},
          .call = [=](Backend& b, const Tensors& in,
                      Tensors& out) { b.copy_range(in[0], 0, out[0], 0, 1, columns, WriteMode::store); },
          .reference = [=](const Arrays& in) -> Arrays {
            return {reference::copy_range(in[0], 0, in[1], 0, 1, columns, WriteMode::store)};
          },
          .nbytes = 2 * as_double(s["rows"] * columns) * nbytes_each(dtype)};
}

Input indices(const Shape& shape, std::int64_t count) {
  return {.shape = shape, .dtype = DType::i64, .low = 0, .high = as_double(count - 1)};
}

Case index_select(const Sizes& s, DType dtype) {
  require_positive("index_select", s);
  return {.inputs = {{{s["rows"], s["columns"]}, dtype}, indices({s["n"]}, s["rows"])},
          .outputs = {{{s["n"], s["columns"]}, dtype}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.index_select(in[0], in[1], out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::index_select(in[0], in[1])}; },
          .nbytes = as_double(s["n"]) * (2 * as_double(s["columns"]) * nbytes_each(dtype) + 8)};
}

Case index_add(const Sizes& s, DType dtype) {
  require_positive("index_add", s);
  const Shape y{s["rows"], s["columns"]};
  return {.inputs = {{{s["n"], s["columns"]}, dtype, -1e-3, 1e-3}, indices({s["n"]}, s["rows"])},
          .outputs = {{.shape = y, .dtype = dtype, .updated = true}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.index_add(in[0], in[1], out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::index_add(in[0], in[1], in[2])}; },
          .nbytes = as_double(s["n"]) * (3 * as_double(s["columns"]) * nbytes_each(dtype) + 8)};
}

Case gather(const Sizes& s, DType dtype) {
  require_positive("gather", s);
  const Shape one{s["n"], 1};
  return {.inputs = {{{s["n"], s["classes"]}, dtype}, indices(one, s["classes"])},
          .outputs = {{one, dtype}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.gather(in[0], 1, in[1], out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::gather(in[0], 1, in[1])}; },
          .nbytes = as_double(s["n"]) * (2 * nbytes_each(dtype) + 8)};
}

Case scatter_add(const Sizes& s, DType dtype) {
  require_positive("scatter_add", s);
  const Shape one{s["n"], 1}, y{s["n"], s["classes"]};
  return {.inputs = {{one, dtype, -1e-3, 1e-3}, indices(one, s["classes"])},
          .outputs = {{.shape = y, .dtype = dtype, .updated = true}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.scatter_add(in[0], 1, in[1], out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::scatter_add(in[0], 1, in[1], in[2])}; },
          .nbytes = as_double(s["n"]) * (3 * nbytes_each(dtype) + 8)};
}

OpRow reduce_row(const char* name, ReduceKind kind) {
  return {name,
          "over rows (dim=0) or over columns (dim=1)",
          {{"rows", 65536}, {"columns", 64}, {"dim", 0}},
          [=](const Sizes& s, DType dtype) -> Case {
            require_positive(name, s);
            require_sizes(s["dim"] <= 1, name, s, "dim must be 0 or 1");
            const std::uint32_t mask = s["dim"] == 0 ? 1u : 2u;
            const bool adds = kind == ReduceKind::sum || kind == ReduceKind::mean;
            return {.inputs = {{{s["rows"], s["columns"]}, dtype}},
                    .outputs = {{{s["dim"] == 0 ? s["columns"] : s["rows"]}, dtype}},
                    .call = [=](Backend& b, const Tensors& in,
                                Tensors& out) { b.reduce(kind, in[0], mask, out[0], WriteMode::store); },
                    .reference = [=](const Arrays& in) -> Arrays { return {reference::reduce(kind, in[0], mask)}; },
                    .terms = adds ? as_double(s["dim"] == 0 ? s["rows"] : s["columns"]) : 1.0};
          }};
}

Case argmax(const Sizes& s, DType dtype) {
  require_positive("argmax", s);
  return {.inputs = {{{s["n"], s["classes"]}, dtype}},
          .outputs = {{{s["n"]}, DType::i64}},
          .call = [](Backend& b, const Tensors& in, Tensors& out) { b.argmax(in[0], 1, out[0]); },
          .reference = [](const Arrays& in) -> Arrays { return {reference::argmax(in[0], 1)}; }};
}

}  // namespace

void add_movement_rows(std::vector<OpRow>& rows) {
  const Sizes numel{{"n", 4194304}};
  const Sizes table{{"rows", 16384}, {"columns", 256}, {"n", 8192}};
  const Sizes classes{{"n", 16384}, {"classes", 256}};
  rows.push_back({"fill", "one value everywhere", numel, fill});
  rows.push_back({"cast", "between f32 and bf16", numel, cast});
  rows.push_back(
      {"permute", "from channels last to channels first", {{"n", 256}, {"h", 14}, {"w", 14}, {"c", 64}}, permute});
  rows.push_back(
      {"copy_range", "columns of one matrix into a wider one", {{"rows", 16384}, {"columns", 128}}, copy_range});
  rows.push_back({"index_select", "rows by number", table, index_select});
  rows.push_back({"index_add", "adds rows by number", table, index_add});
  rows.push_back({"gather", "one element of each row", classes, gather});
  rows.push_back({"scatter_add", "adds to one element of each row", classes, scatter_add});
  rows.push_back(reduce_row("reduce_sum", ReduceKind::sum));
  rows.push_back(reduce_row("reduce_mean", ReduceKind::mean));
  rows.push_back(reduce_row("reduce_max", ReduceKind::max));
  rows.push_back(reduce_row("reduce_min", ReduceKind::min));
  rows.push_back({"argmax", "position of the largest element of each row", classes, argmax});
}

}  // namespace heddle::tools::bench
