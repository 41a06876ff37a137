#include <cmath>
#include <limits>

#include "reference/reference.h"

namespace heddle::reference {
namespace {

// log p of one row of n logits. A NaN in the row makes all of them NaN.
std::vector<double> log_softmax_row(const double* x, std::int64_t n) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t c = 0; c < n; ++c) top = std::max(top, x[c]);
  for (std::int64_t c = 0; c < n; ++c) sum += std::exp(x[c] - top);
  std::vector<double> log_p(static_cast<std::size_t>(n));
  for (std::int64_t c = 0; c < n; ++c) log_p[static_cast<std::size_t>(c)] = x[c] - top - std::log(sum);
  return log_p;
}

// q * -log p where q = 0 gives 0 even for p = 0.
double cross(double q, double log_p) { return q == 0 ? 0 : -q * log_p; }

}  // namespace

Array softmax_forward(const Array& x, bool log) {
  Array y(x.shape);
  const std::int64_t n = x.dim(-1);
  for (std::int64_t begin = 0; begin < x.numel(); begin += n) {
    const std::vector<double> log_p = log_softmax_row(&x.values[static_cast<std::size_t>(begin)], n);
    for (std::int64_t c = 0; c < n; ++c) {
      const double value = log_p[static_cast<std::size_t>(c)];
      y[begin + c] = log ? value : std::exp(value);
    }
  }
  return y;
}

Array softmax_backward(const Array& y, const Array& dy, bool log) {
  Array dx(y.shape);
  const std::int64_t n = y.dim(-1);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    // The row of the Jacobian: softmax y_i (d_ij - y_j); log-softmax d_ij - exp(y_i).
    const std::int64_t begin = i / n * n;
    for (std::int64_t j = begin; j < begin + n; ++j) {
      const double same = i == j ? 1 : 0;
      dx[i] += dy[j] * (log ? same - std::exp(y[i]) : y[j] * (same - y[i]));
    }
  }
  return dx;
}

CrossEntropy cross_entropy(const Array& logits, const Array& labels, const Array& class_weight,
                           const CrossEntropyParams& params) {
  const std::int64_t rows = logits.dim(0), classes = logits.dim(1);
  CrossEntropy result{Array({rows}), Array(logits.shape), Array({tail_slot::kCount})};
  const auto weight = [&](std::int64_t c) { return class_weight.defined() ? class_weight[c] : 1.0; };
  double loss_sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto label = static_cast<std::int64_t>(labels[r]);
    if (label == params.ignore_index) continue;
    const double* const x = &logits.values[static_cast<std::size_t>(r * classes)];
    const std::vector<double> log_p = log_softmax_row(x, classes);
    std::vector<double> q(static_cast<std::size_t>(classes));  // target distribution times class weights
    double q_sum = 0, loss = 0;
    std::int64_t best = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      const auto i = static_cast<std::size_t>(c);
      q[i] = params.label_smoothing / static_cast<double>(classes) * weight(c);
      if (c == label) q[i] += (1 - params.label_smoothing) * weight(c);
      q_sum += q[i];
      loss += std::isnan(log_p[i]) ? log_p[i] : cross(q[i], log_p[i]);
      if (x[c] > x[best]) best = c;
    }
    for (std::int64_t c = 0; c < classes; ++c) {
      const auto i = static_cast<std::size_t>(c);
      result.dlogits[r * classes + c] = std::exp(log_p[i]) * q_sum - q[i];
    }
    result.row_loss[r] = loss;
    loss_sum += loss;
    result.stats[tail_slot::kWeightSum] += weight(label);
    result.stats[tail_slot::kCorrect] += best == label ? 1 : 0;
    result.stats[tail_slot::kSamples] += 1;
  }
  result.stats[tail_slot::kLossSum] = loss_sum;
  result.stats[tail_slot::kNonFinite] = std::isfinite(loss_sum) ? 0 : 1;
  return result;
}

}  // namespace heddle::reference
