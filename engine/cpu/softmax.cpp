// Softmax and cross-entropy over the last dimension. Used through CpuBackend. Rows of cross_entropy, best first: the
// SIMD table for f32, then the loops here. bf16 is widened to f32 first.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "engine/core/parallel.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/simd/simd_kernels.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

// An exponential costs about as much as eight other operations.
std::int64_t row_grain(std::int64_t columns) {
  return std::max<std::int64_t>(1, kGrain / 8 / std::max<std::int64_t>(1, columns));
}

// Rows of `columns` elements; none for an empty tensor.
std::int64_t rows_of(const Tensor& x, std::int64_t columns) { return columns == 0 ? 0 : x.numel() / columns; }

// A NaN anywhere gives NaN through the sum.
template <class T>
Compute<T> largest(const T* x, std::int64_t n) {
  Compute<T> top = load(x[0]);
  for (std::int64_t c = 1; c < n; ++c) top = load(x[c]) > top ? load(x[c]) : top;
  return top;
}

// log(sum of exp(x - top)); in double, so that it is right for any number of columns.
template <class T>
double log_sum_exp(const T* x, std::int64_t n, Compute<T> top) {
  double sum = 0;
  for (std::int64_t c = 0; c < n; ++c) sum += static_cast<double>(std::exp(load(x[c]) - top));
  return std::log(sum);
}

struct Counts {
  std::int64_t correct = 0, samples = 0;
};

// What all rows of one call share.
template <class T>
struct CrossEntropyCall {
  const T* logits;
  const std::int64_t* labels;
  const T* class_weight;  // or null
  T* row_loss;
  T* dlogits;  // or null
  std::int64_t classes;
  std::int64_t ignore_index;
  double smoothing;
  double weight_sum;  // of all classes

  double weight(std::int64_t c) const { return class_weight == nullptr ? 1.0 : static_cast<double>(class_weight[c]); }

  // With p = softmax(x), q_c = (1 - e) w_c [c = label] + e / K w_c and Q = sum of q:
  //   loss = sum over c of q_c * -log p_c,   d loss / d x_c = Q p_c - q_c.
  // Terms with q_c = 0 are left out, so that p_c = 0 there does no harm.
  void row(std::int64_t r, Counts& counts) const {
    const T* const x = logits + r * classes;
    T* const dx = dlogits == nullptr ? nullptr : dlogits + r * classes;
    const std::int64_t label = labels[r];
    if (label == ignore_index || label < 0 || label >= classes) {
      row_loss[r] = label == ignore_index ? T(0) : std::numeric_limits<T>::quiet_NaN();
      if (dx != nullptr) std::fill_n(dx, classes, T(0));
      return;
    }
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < classes; ++c) {
      if (x[c] > x[best]) best = c;
    }
    ++counts.samples;
    counts.correct += best == label ? 1 : 0;
    const T top = x[best];
    const double log_sum = log_sum_exp(x, classes, top);
    const auto log_p = [&](std::int64_t c) { return static_cast<double>(x[c] - top) - log_sum; };
    const double on_label = (1 - smoothing) * weight(label), on_each = smoothing / static_cast<double>(classes);
    // A NaN logit must show even where the label's own term is left out.
    double loss = std::isnan(log_sum) ? log_sum : on_label == 0 ? 0 : -on_label * log_p(label);
    if (smoothing != 0) {
      for (std::int64_t c = 0; c < classes; ++c) {
        if (const double q = on_each * weight(c); q != 0) loss -= q * log_p(c);
      }
    }
    row_loss[r] = static_cast<T>(loss);
    if (dx == nullptr) return;
    const double total = on_label + on_each * weight_sum;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double q = on_each * weight(c) + (c == label ? on_label : 0);
      dx[c] = static_cast<T>(total * std::exp(log_p(c)) - q);
    }
  }
};

template <class T>
Counts own_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& class_weight,
                         const CrossEntropyParams& params, Tensor& row_loss, Tensor& dlogits) {
  CrossEntropyCall<T> call{.logits = data_of<T>(logits),
                           .labels = data_of<std::int64_t>(labels),
                           .class_weight = class_weight.defined() ? data_of<T>(class_weight) : nullptr,
                           .row_loss = data_of<T>(row_loss),
                           .dlogits = dlogits.defined() ? data_of<T>(dlogits) : nullptr,
                           .classes = logits.dim(1),
                           .ignore_index = params.ignore_index,
                           .smoothing = params.label_smoothing,
                           .weight_sum = 0};
  for (std::int64_t c = 0; c < call.classes; ++c) call.weight_sum += call.weight(c);
  std::atomic<std::int64_t> correct{0}, samples{0};
  parallel_for(logits.dim(0), row_grain(call.classes), [&](std::int64_t begin, std::int64_t end) {
    Counts counts;
    for (std::int64_t r = begin; r < end; ++r) call.row(r, counts);
    correct += counts.correct;
    samples += counts.samples;
  });
  return {correct, samples};
}

Counts simd_cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& class_weight,
                          const CrossEntropyParams& params, Tensor& row_loss, Tensor& dlogits) {
  const simd::SimdKernels& kernels = simd::simd_kernels();
  const std::int64_t rows = logits.dim(0), classes = logits.dim(1), grain = row_grain(classes);
  const auto scratch_floats = static_cast<std::int64_t>(kernels.cross_entropy_scratch_floats(classes));
  Tensor scratch = Tensor::empty({parallel_parts(rows, grain), scratch_floats});
  float* const scratch_data = data_of<float>(scratch);
  const simd::CrossEntropy call{.rows = rows,
                                .classes = classes,
                                .logits = data_of<float>(logits),
                                .targets = data_of<std::int64_t>(labels),
                                .class_weights = class_weight.defined() ? data_of<float>(class_weight) : nullptr,
                                .label_smoothing = static_cast<float>(params.label_smoothing),
                                .ignore_index = params.ignore_index,
                                .gradient_scale = 1.0f,
                                .loss = data_of<float>(row_loss),
                                .dlogits = dlogits.defined() ? data_of<float>(dlogits) : nullptr,
                                .scratch = nullptr};
  std::atomic<std::int64_t> correct{0}, samples{0};
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end, int part) {
    simd::CrossEntropy own = call;
    own.scratch = scratch_data + part * scratch_floats;
    const simd::CrossEntropySums sums = kernels.cross_entropy(own, {begin, end});
    correct += sums.correct;
    samples += sums.counted;
  });
  return {correct, samples};
}

// The sums of one call. They run over the rows in order, in double.
template <class T>
void write_sums(const Tensor& row_loss, const Tensor& labels, const Tensor& class_weight,
                const CrossEntropyParams& params, const Counts& counts, CrossEntropyResult& result) {
  const T* const losses = data_of<T>(row_loss);
  double loss = 0, weight = static_cast<double>(counts.samples);
  for (std::int64_t r = 0; r < row_loss.numel(); ++r) loss += static_cast<double>(losses[r]);
  if (result.loss.defined()) *data_of<T>(result.loss) = static_cast<T>(loss);
  if (!result.stats.defined()) return;
  if (class_weight.defined()) {
    const T* const weights = data_of<T>(class_weight);
    const auto* const label = data_of<std::int64_t>(labels);
    weight = 0;
    for (std::int64_t r = 0; r < labels.numel(); ++r) {
      if (label[r] != params.ignore_index && label[r] >= 0 && label[r] < class_weight.numel()) {
        weight += static_cast<double>(weights[label[r]]);
      }
    }
  }
  float* const tail = data_of<float>(result.stats);
  if (result.stats_mode == WriteMode::store) std::fill_n(tail, tail_slot::kCount, 0.0f);
  tail[tail_slot::kWeightSum] += static_cast<float>(weight);
  tail[tail_slot::kLossSum] += static_cast<float>(loss);
  tail[tail_slot::kCorrect] += static_cast<float>(counts.correct);
  tail[tail_slot::kSamples] += static_cast<float>(counts.samples);
  if (!std::isfinite(loss)) tail[tail_slot::kNonFinite] += 1.0f;
}

}  // namespace

void CpuBackend::softmax_forward(const Tensor& x, bool log, Tensor& y) {
  const std::int64_t n = x.dim(-1);
  visit_floats("softmax_forward", x.dtype(), [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    const T* const from = data_of<T>(x);
    T* const to = data_of<T>(y);
    parallel_for(rows_of(x, n), row_grain(n), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* const row = from + r * n;
        const C top = largest(row, n);
        const double log_sum = log_sum_exp(row, n, top);
        const C shift = static_cast<C>(log_sum), scale = static_cast<C>(std::exp(-log_sum));
        for (std::int64_t c = 0; c < n; ++c) {
          const C z = load(row[c]) - top;
          to[r * n + c] = convert_to<T>(log ? z - shift : std::exp(z) * scale);
        }
      }
    });
  });
}

// Softmax: dx_i = y_i (dy_i - sum_j dy_j y_j). Log-softmax: dx_i = dy_i - exp(y_i) sum_j dy_j.
void CpuBackend::softmax_backward(const Tensor& y, const Tensor& dy, bool log, Tensor& dx, WriteMode mode) {
  const std::int64_t n = y.dim(-1);
  visit_floats("softmax_backward", y.dtype(), [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    const T* const saved = data_of<T>(y);
    const T* const from = data_of<T>(dy);
    T* const to = data_of<T>(dx);
    parallel_for(rows_of(y, n), row_grain(n), [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T* const v = saved + r * n;
        const T* const g = from + r * n;
        double sum = 0;
        for (std::int64_t c = 0; c < n; ++c) sum += static_cast<double>(log ? load(g[c]) : load(g[c]) * load(v[c]));
        const C total = static_cast<C>(sum);
        for (std::int64_t c = 0; c < n; ++c) {
          C value = log ? load(g[c]) - std::exp(load(v[c])) * total : load(v[c]) * (load(g[c]) - total);
          if (mode == WriteMode::add) value += load(to[r * n + c]);
          to[r * n + c] = convert_to<T>(value);
        }
      }
    });
  });
}

void CpuBackend::cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& class_weight,
                               const CrossEntropyParams& params, CrossEntropyResult& result) {
  if (logits.dtype() == DType::bf16) {
    CrossEntropyResult wide = result;
    if (result.dlogits.defined()) wide.dlogits = Tensor::empty(result.dlogits.shape());
    cross_entropy(widen(logits), labels, widen(class_weight), params, wide);
    if (result.dlogits.defined()) cast(wide.dlogits, result.dlogits);
    return;
  }
  visit_f32_f64("cross_entropy", logits.dtype(), [&]<class T>(TypeTag<T>) {
    Tensor row_loss = result.row_loss.defined() ? result.row_loss : Tensor::empty({logits.dim(0)}, logits.dtype());
    const Counts counts = [&] {
      if constexpr (std::is_same_v<T, float>) {
        return simd_cross_entropy(logits, labels, class_weight, params, row_loss, result.dlogits);
      } else {
        return own_cross_entropy<T>(logits, labels, class_weight, params, row_loss, result.dlogits);
      }
    }();
    write_sums<T>(row_loss, labels, class_weight, params, counts, result);
  });
}

}  // namespace heddle::cpu
