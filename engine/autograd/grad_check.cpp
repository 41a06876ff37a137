#include "engine/autograd/grad_check.h"

#include <algorithm>
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/core/random.h"

namespace heddle {
namespace {

using Function = std::function<Variable(const std::vector<Variable>&)>;

double weighted_sum(const Tensor& y, const std::vector<double>& weights) {
  const double* values = y.host_data<double>();
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * values[i];
  return sum;
}

void check_is_f64(const char* what, std::size_t i, const Tensor& x) {
  HEDDLE_CHECK(x.defined() && x.dtype() == DType::f64 && x.device().is_cpu(), "grad_check: ", what, " ", i,
               " has to be f64 on the CPU, it is ",
               x.defined() ? join_text(x.dtype(), " on ", x.device()) : std::string("undefined"));
}

// Value of the function with element `element` of input `input` moved by delta.
double value_at(const Function& function, const std::vector<Tensor>& inputs, const std::vector<double>& weights,
                std::size_t input, std::int64_t element, double delta) {
  std::vector<Variable> moved;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor copy = inputs[i].clone();
    if (i == input) copy.mutable_host_data<double>()[element] += delta;
    moved.emplace_back(std::move(copy));
  }
  const NoGradGuard guard;
  return weighted_sum(function(moved).data(), weights);
}

}  // namespace

GradCheckResult grad_check(const Function& function, const std::vector<Tensor>& inputs,
                           const GradCheckOptions& options) {
  HEDDLE_CHECK(function != nullptr, "grad_check: there is no function");
  std::vector<Variable> leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_is_f64("input", i, inputs[i]);
    leaves.emplace_back(inputs[i].clone(), true);
  }
  const Variable y = function(leaves);
  check_is_f64("output", 0, y.data());
  std::vector<double> weights(static_cast<std::size_t>(y.numel()), 1.0);
  if (weights.size() > 1) {
    Philox random(options.seed);
    for (double& weight : weights) weight = 2.0 * static_cast<double>(random.uniform()) - 1.0;
    backward(y, {}, {.gradient = Tensor::from_values(weights, y.shape())});
  } else {
    backward(y);
  }

  GradCheckResult result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::vector<double> x = inputs[i].to_vector<double>();
    const std::vector<double> gradient = leaves[i].grad().to_vector<double>();
    for (std::size_t e = 0; e < x.size(); ++e) {
      const double step = options.step * std::max(1.0, std::abs(x[e]));
      const auto element = static_cast<std::int64_t>(e);
      const double difference = (value_at(function, inputs, weights, i, element, step) -
                                 value_at(function, inputs, weights, i, element, -step)) /
                                (2 * step);
      const double abs_error = std::abs(gradient[e] - difference);
      const double rel_error = abs_error / std::max({1.0, std::abs(gradient[e]), std::abs(difference)});
      result.max_abs_error = std::max(result.max_abs_error, abs_error);
      if (rel_error > result.max_rel_error || std::isnan(rel_error)) {
        result.max_rel_error = std::isnan(rel_error) ? HUGE_VAL : rel_error;
        result.worst = join_text("input ", i, ", element ", e, ": gradient ", gradient[e], ", difference ", difference);
      }
    }
  }
  return result;
}

}  // namespace heddle
