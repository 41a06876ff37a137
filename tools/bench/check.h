// A case's operands in memory, and the comparison of what a backend made of them with the reference in double.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/op_row.h"

namespace heddle::tools::bench {

// The operands of a case on a device.
class Operands {
 public:
  // Throws: OutOfMemory.
  Operands(const Case& c, Device device);
  const std::vector<Tensor>& inputs() const noexcept { return inputs_; }
  std::vector<Tensor>& outputs() noexcept { return outputs_; }
  const std::vector<Tensor>& initial() const noexcept { return initial_; }
  // Sets outputs to their initial values, others to NaN, so that what a call leaves out shows.
  void reset_outputs();

 private:
  std::vector<Tensor> inputs_, outputs_;  // on the device
  std::vector<Tensor> initial_;           // on the CPU, one for each output
};

struct CheckResult {
  bool ok = false;
  // Of the worst element: |value - expected| / (root mean square of the expected + |expected|), and what is allowed.
  double error = 0, tolerance = 0;
  std::string problem;  // "" if ok: where and what
};

// What the outputs of a case must be. A case whose reference would take more than a second is compared in two parts,
// its first and last images, rows or channels.
class Expectation {
 public:
  Expectation(const Case& c, const Operands& operands);
  // "all", or "2 of 256" of the dimension along which the case is cut.
  const std::string& extent() const noexcept { return extent_; }
  // Blocks until the outputs are there.
  CheckResult compare(const std::vector<Tensor>& outputs) const;

 private:
  struct Part {
    std::int64_t begin = 0, n = 0;
    Arrays expected;
  };

  const Case& case_;
  bool whole_ = true;
  std::vector<Part> parts_;
  std::string extent_ = "all";
};

// 1e-5 for f32, 8e-3 for bf16, 0 (equal) for whole numbers; wider for sums of more than 1024 terms, as the square root
// of their number, which is how rounding errors of random signs grow.
double tolerance_for(const Case& c, DType dtype);

}  // namespace heddle::tools::bench
