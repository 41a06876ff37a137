// What the benchmark knows of an op: one row for each primitive of engine/backend/backend.h, in rows_*.cpp. A row turns
// sizes and a dtype into a case: operands, the call, the reference in double, and what the call must move and compute.
// Knows nothing of clocks and reports.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "reference/array.h"
#include "tools/bench/sizes.h"

namespace heddle::tools::bench {

using reference::Array;
using reference::Arrays;

// The dimension along which a large case can be cut into independent parts, so that the slow reference computes only
// some; kWhole: every part needs the whole operand.
inline constexpr int kWhole = -1;

// An operand that is read: the given values, or random ones of [low, high).
struct Input {
  Shape shape;
  DType dtype = DType::f32;
  double low = -1, high = 1;
  int cut = kWhole;
  std::optional<Array> values = {};
  bool undefined = false;  // the call gets an undefined tensor
};

// An operand that is written. If it is updated, the call reads it, too: random values of [low, high), which are an
// argument of the reference, behind the inputs.
struct Output {
  Shape shape;
  DType dtype = DType::f32;
  int cut = kWhole;
  bool updated = false;
  double low = -1, high = 1;
};

struct Case {
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::function<void(Backend& backend, const std::vector<Tensor>& in, std::vector<Tensor>& out)> call;
  // All outputs, in double.
  std::function<Arrays(const Arrays& in)> reference;
  // Floating-point operations of the definition, a multiply-add being two; 0 where counting them says nothing.
  double flops = 0;
  // Steps that the reference takes, where they are not half of flops: large cases are compared in parts.
  double work = 0;
  // Bytes that must be read and written at least; unset: every operand once (read-and-written ones twice).
  std::optional<double> nbytes = {};
  // Values that are summed up for one element of the result: long sums have a wider tolerance.
  double terms = 1;
  // Factor on the tolerance, for functions that are less exact.
  double tolerance = 1;
};

struct OpRow {
  std::string name;
  std::string summary;
  Sizes sizes;  // the names that --shape takes, with the values of `heddle bench NAME`
  // `dtype`: f32 or bf16, of the floating operands. Throws: UsageError if the sizes do not fit each other.
  std::function<Case(const Sizes& sizes, DType dtype)> make;
};

// All rows, families together.
const std::vector<OpRow>& op_rows();
std::vector<std::string> op_names();
// Null if there is none of that name.
const OpRow* find_op(const std::string& name);

// The parts of op_rows().
void add_elementwise_rows(std::vector<OpRow>& rows);
void add_movement_rows(std::vector<OpRow>& rows);
void add_product_rows(std::vector<OpRow>& rows);
void add_pooling_rows(std::vector<OpRow>& rows);
void add_batch_norm_rows(std::vector<OpRow>& rows);
void add_fused_rows(std::vector<OpRow>& rows);
void add_training_rows(std::vector<OpRow>& rows);

// Bytes that a call must read and write.
double nbytes_of(const Case& c);
// Elements of all operands.
double numel_of(const Case& c);
// A gigabyte of operands in f32, two in the double of the reference.
inline constexpr std::int64_t kMaxNumel = std::int64_t{1} << 28;
// Throws: UsageError "OP: sizes ...: message" unless the condition holds.
void require_sizes(bool condition, const char* op, const Sizes& sizes, const char* message);

}  // namespace heddle::tools::bench
