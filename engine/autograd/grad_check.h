// Compares gradients with central differences in f64 on the CPU. For tests of ops and of own nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "variable.h"

namespace heddle {

struct GradCheckOptions {
  // Step of the differences, times max(1, |x|). Their error is about step^2 |f'''| + 1e-16 |f| / step.
  double step = 1e-5;
  // Of the weights that make one number of an output with several elements.
  std::uint64_t seed = 1;
};

struct GradCheckResult {
  double max_abs_error = 0;  // largest |gradient - difference|
  double max_rel_error = 0;  // the same over max(1, |gradient|, |difference|)
  std::string worst;         // where max_rel_error is: "input 1, element 4: gradient 0.5, difference 0.25"
};

// function(inputs) is differentiated at the given values (f64, on the CPU) for all of them. An output with more than
// one element is multiplied by random weights in [-1, 1] and summed, so that every element's gradient counts. The
// function must be pure and smooth near the values: a kink closer than the step shows as a large error.
// Throws: InvalidArgument on other dtypes or devices; what the function throws.
GradCheckResult grad_check(const std::function<Variable(const std::vector<Variable>&)>& function,
                           const std::vector<Tensor>& inputs, const GradCheckOptions& options = {});

}  // namespace heddle
