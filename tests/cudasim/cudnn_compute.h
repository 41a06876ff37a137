// What the simulated cuDNN computes: one function per family of operations, in double, straight from the formulas. Used
// by cudnn_execute.cpp; knows nothing of the project's own CPU backend, so that the two can check each other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tests/cudasim/cudnn_descriptor.h"

namespace cudasim {

// A dense array. With four or more dimensions (N,C,H,W) channels lie next to each other, otherwise the last dimension.
struct Values {
  explicit Values(std::vector<std::int64_t> dimensions);
  std::int64_t numel() const { return static_cast<std::int64_t>(data.size()); }

  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::vector<double> data;
};

// Dimensions from the outermost to the innermost in memory.
std::vector<std::size_t> storage_order(std::size_t rank);

Values load_values(const TensorInfo& tensor, const void* view);
void store_values(const TensorInfo& tensor, const Values& values, void* view);

// The tensors of a running graph: inputs are read when first asked for, outputs are rounded to their type and kept, so
// that every operation sees what a stored tensor would hold.
class TensorTable {
 public:
  // Gives the memory of a tensor that is not virtual; `write` if it will be changed.
  using Opener = std::function<void*(const TensorInfo& tensor, bool write)>;
  explicit TensorTable(Opener open) : open_(std::move(open)) {}

  void put_constant(std::int64_t unique_id, double value);
  const Values& input(const Operation& operation, cudnnBackendAttributeName_t role);
  // The value of a tensor of one element.
  double scalar(const Operation& operation, cudnnBackendAttributeName_t role);
  // Does nothing if the operation has no such operand.
  void output(const Operation& operation, cudnnBackendAttributeName_t role, Values values);

 private:
  Opener open_;
  std::map<std::int64_t, Values> values_;
};

struct ComputeOptions {
  // Round the factors of products to TF32.
  bool tf32 = false;
  // The last bits of each result are chance, as where blocks add in the order in which they come.
  bool nondeterministic = false;
};
void compute_convolution(const Operation& operation, const ComputeOptions& options, TensorTable& tensors);
void compute_matmul(const Operation& operation, const ComputeOptions& options, TensorTable& tensors);
void compute_pointwise(const Operation& operation, TensorTable& tensors);
void compute_reduction(const Operation& operation, TensorTable& tensors);
void compute_pooling(const Operation& operation, TensorTable& tensors);
void compute_norm(const Operation& operation, TensorTable& tensors);
void compute_statistics(const Operation& operation, TensorTable& tensors);
// Any of them.
void compute_operation(const Operation& operation, const ComputeOptions& options, TensorTable& tensors);

}  // namespace cudasim
