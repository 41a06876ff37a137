#include <fmt/format.h>

#include "tools/bench/op_row.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

double nbytes_of_operand(const Shape& shape, DType dtype) {
  return static_cast<double>(shape.numel()) * static_cast<double>(size_of(dtype));
}

}  // namespace

const std::vector<OpRow>& op_rows() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all;
    add_product_rows(all);
    add_pooling_rows(all);
    add_batch_norm_rows(all);
    add_fused_rows(all);
    add_training_rows(all);
    add_elementwise_rows(all);
    add_movement_rows(all);
    return all;
  }();
  return rows;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const OpRow& row : op_rows()) names.push_back(row.name);
  return names;
}

const OpRow* find_op(const std::string& name) {
  for (const OpRow& row : op_rows()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

double nbytes_of(const Case& c) {
  if (c.nbytes) return *c.nbytes;
  double nbytes = 0;
  for (const Input& input : c.inputs) {
    if (!input.undefined) nbytes += nbytes_of_operand(input.shape, input.dtype);
  }
  for (const Output& output : c.outputs) {
    nbytes += nbytes_of_operand(output.shape, output.dtype) * (output.updated ? 2 : 1);
  }
  return nbytes;
}

double numel_of(const Case& c) {
  // In double, which has room for any sum of 64-bit counts.
  double numel = 0;
  for (const Input& input : c.inputs) numel += input.undefined ? 0 : static_cast<double>(input.shape.numel());
  for (const Output& output : c.outputs) numel += static_cast<double>(output.shape.numel());
  return numel;
}

void require_sizes(bool condition, const char* op, const Sizes& sizes, const char* message) {
  if (!condition) throw UsageError(fmt::format("{} {}: {}", op, sizes.text(), message));
}

}  // namespace heddle::tools::bench
