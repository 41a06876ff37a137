// Gradients of every row of op_cases: against differences in f64, and f32 and other devices against f64.
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/autograd/grad_check.h"
#include "engine/core/parallel.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_cases.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;

namespace {

// Float values are rounded to a dtype, so that this and all wider ones see the same.
Array input_values(const ParityInput& input, std::uint64_t seed, DType rounding) {
  if (input.values) return *input.values;
  if (input.dtype) {
    return integer_array(input.shape, static_cast<std::int64_t>(input.low), static_cast<std::int64_t>(input.high),
                         seed);
  }
  return array_of(tensor_of(random_array(input.shape, input.low, input.high, seed), rounding));
}

// The row's inputs: leaves where they are float, constants elsewhere.
struct Inputs {
  Inputs(const OpCase& row, DType dtype, Device device, DType rounding = DType::f32) {
    for (const ParityInput& input : row.inputs) {
      const Array values = input_values(input, all.size() + 1, rounding);
      all.emplace_back(tensor_of(values, input.dtype.value_or(dtype), device), !input.dtype.has_value());
    }
  }
  std::vector<Variable> all;
};

Tensor weights_like(const Tensor& y, DType rounding = DType::f32) {
  return tensor_of(array_of(tensor_of(random_array(y.shape(), -1, 1, 99), rounding)), y.dtype(), y.device());
}

// Gradients of all leaves for y weighted by random numbers, one after the other. uses: how often the op runs on the
// same inputs; the outputs are added.
std::vector<double> gradients(const OpCase& row, DType dtype, Device device, int uses = 1,
                              DType rounding = DType::f32) {
  Inputs inputs(row, dtype, device, rounding);
  Variable y = row.call(inputs.all);
  for (int i = 1; i < uses; ++i) y = y + row.call(inputs.all);
  backward(y, {}, {.gradient = weights_like(y.data(), rounding)});
  std::vector<double> all;
  for (Variable& input : inputs.all) {
    if (!input.requires_grad()) continue;
    CHECK(input.grad().shape() == input.shape());
    for (const double g : list(input.grad())) all.push_back(g);
  }
  return all;
}

}  // namespace

TEST_CASE("gradients of every op agree with differences") {
  const ThreadLimit one_thread(1);  // thousands of tiny calls: threads would only wait for each other
  for (const OpCase& row : op_cases()) {
    if (!row.differentiable) continue;
    const Inputs inputs(row, DType::f64, Device::cpu());
    std::vector<Tensor> moving;
    for (const Variable& input : inputs.all) {
      if (input.requires_grad()) moving.push_back(input.data());
    }
    const GradCheckResult result = grad_check(
        [&](const std::vector<Variable>& leaves) {
          std::vector<Variable> in;
          std::size_t next = 0;
          for (const Variable& input : inputs.all) in.push_back(input.requires_grad() ? leaves[next++] : input);
          return row.call(in);
        },
        moving);
    INFO(row.name << ": " << result.worst);
    // The labels' weight sum is f32 in every dtype.
    CHECK(result.max_rel_error < 1e-7);
  }
}

TEST_CASE("gradients in f32 agree with those in f64, on every device, and repeat bit for bit") {
  for (const Device device : test_devices()) {
    for (const OpCase& row : op_cases()) {
      if (!row.differentiable) continue;
      INFO(row.name << " on " << device);
      const std::vector<double> once = gradients(row, DType::f32, device);
      CHECK(differs(once, gradients(row, DType::f64, Device::cpu()), 2e-5, 2e-5) == "");
      CHECK(once == gradients(row, DType::f32, device));
    }
  }
}

TEST_CASE("gradients in bf16 agree with those in f64") {
  for (const Device device : test_devices()) {
    for (const OpCase& row : op_cases()) {
      if (!row.differentiable || std::find(row.dtypes.begin(), row.dtypes.end(), DType::bf16) == row.dtypes.end()) {
        continue;
      }
      INFO(row.name << " on " << device);
      CHECK(differs(gradients(row, DType::bf16, device, 1, DType::bf16),
                    gradients(row, DType::f64, Device::cpu(), 1, DType::bf16), 3e-2, 3e-2) == "");
    }
  }
}

TEST_CASE("an op used twice on the same inputs adds its gradients up") {
  for (const OpCase& row : op_cases()) {
    if (!row.differentiable) continue;
    INFO(row.name);
    std::vector<double> twice = gradients(row, DType::f64, Device::cpu(), 1);
    for (double& g : twice) g *= 2;
    CHECK(differs(gradients(row, DType::f64, Device::cpu(), 2), twice, 1e-12, 1e-12) == "");
  }
}

TEST_CASE("an op computes gradients only for the inputs that want one") {
  for (const OpCase& row : op_cases()) {
    if (!row.differentiable) continue;
    Inputs full(row, DType::f64, Device::cpu());
    Variable y = row.call(full.all);
    const Tensor weights = weights_like(y.data());
    backward(y, {}, {.gradient = weights});
    for (std::size_t chosen = 0; chosen < full.all.size(); ++chosen) {
      if (!full.all[chosen].requires_grad()) continue;
      INFO(row.name << ", input " << chosen << " alone");
      Inputs one(row, DType::f64, Device::cpu());
      for (std::size_t i = 0; i < one.all.size(); ++i) one.all[i].set_requires_grad(i == chosen);
      backward(row.call(one.all), {}, {.gradient = weights});
      CHECK(differs(list(one.all[chosen].grad()), list(full.all[chosen].grad()), 1e-13, 1e-13) == "");
    }
  }
}

TEST_CASE("the gradient checker finds a wrong derivative and names the place") {
  const auto detached = [](const std::vector<Variable>& in) {
    return ops::sum(in[0] * ops::exp(in[1].detach()) + in[1]);
  };
  const GradCheckResult wrong =
      grad_check(detached, {values({2}, {1, 2}, DType::f64), values({2}, {0, 1}, DType::f64)});
  CHECK(wrong.max_abs_error == Approx(2 * std::exp(1.0)).epsilon(1e-6));
  CHECK_THAT(wrong.worst, Catch::Contains("input 1, element 1"));
  CHECK_THROWS_WITH(grad_check(detached, {values({2}, {1, 2}), values({2}, {0, 1})}),
                    Catch::Contains("f64") && Catch::Contains("f32"));
}
