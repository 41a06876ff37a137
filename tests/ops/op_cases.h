// One row an op: what the tests of parity, gradients and repeatability, and benchmarks, need to know of it. A new op
// gets a row here and is tested on every backend.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "tests/support/parity.h"

namespace heddle::testing {

struct OpCase {
  std::string name;
  // Inputs without a dtype of their own are float and get gradients; the others are constants.
  std::vector<ParityInput> inputs;
  Shape shape;  // of the result
  std::function<Variable(const std::vector<Variable>& in)> call;
  // The result in double; only the number of elements must be that of `shape`.
  std::function<reference::Array(const reference::Arrays& in)> reference;
  bool differentiable = true;
  double tolerance = 1;  // factor on the dtype's, see ParityRow
  std::vector<DType> dtypes = {DType::f32, DType::f64, DType::bf16};
};

const std::vector<OpCase>& op_cases();

// The parts of op_cases().
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> layer_cases();
std::vector<OpCase> batch_norm_cases();

}  // namespace heddle::testing
