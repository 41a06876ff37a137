#include "engine/data/metrics.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "engine/backend/op_params.h"

namespace heddle::data {
namespace {

double ratio(double part, double whole) noexcept {
  return whole == 0 ? std::numeric_limits<double>::quiet_NaN() : part / whole;
}

}  // namespace

void RunningMetrics::add(double loss_sum, double weight_sum, std::int64_t correct, std::int64_t samples) {
  loss_sum_ += loss_sum;
  weight_sum_ += weight_sum;
  correct_ += correct;
  samples_ += samples;
}

void RunningMetrics::add(const Tensor& tail) {
  HEDDLE_CHECK(tail.defined() && tail.numel() == tail_slot::kCount && tail.dtype() == DType::f32,
               "metrics: the tail must be f32 (", tail_slot::kCount, "), got ", tail.dtype(), " ", tail.shape());
  const std::vector<float> values = tail.to_vector<float>();
  const auto at = [&](std::int64_t slot) { return static_cast<double>(values[static_cast<std::size_t>(slot)]); };
  add(at(tail_slot::kLossSum), at(tail_slot::kWeightSum), std::llround(at(tail_slot::kCorrect)),
      std::llround(at(tail_slot::kSamples)));
}

double RunningMetrics::loss() const noexcept { return ratio(loss_sum_, weight_sum_); }

double RunningMetrics::accuracy() const noexcept {
  return ratio(static_cast<double>(correct_), static_cast<double>(samples_));
}

ConfusionMatrix::ConfusionMatrix(std::int64_t num_classes) : num_classes_(num_classes) {
  HEDDLE_CHECK(num_classes >= 1 && num_classes <= 46340, "confusion matrix: ", num_classes, " classes");
  counts_.assign(static_cast<std::size_t>(num_classes * num_classes), 0);
}

void ConfusionMatrix::add(std::span<const std::int64_t> labels, std::span<const std::int64_t> predictions) {
  HEDDLE_CHECK(labels.size() == predictions.size(), "confusion matrix: ", labels.size(), " labels and ",
               predictions.size(), " predictions");
  for (std::size_t i = 0; i < labels.size(); ++i) index(labels[i], predictions[i]);
  for (std::size_t i = 0; i < labels.size(); ++i) ++counts_[index(labels[i], predictions[i])];
}

void ConfusionMatrix::add(const Tensor& labels, const Tensor& predictions) {
  add(labels.to_vector<std::int64_t>(), predictions.to_vector<std::int64_t>());
}

std::size_t ConfusionMatrix::index(std::int64_t label, std::int64_t prediction) const {
  HEDDLE_CHECK(label >= 0 && label < num_classes_ && prediction >= 0 && prediction < num_classes_,
               "confusion matrix: label ", label, " and prediction ", prediction, " of ", num_classes_, " classes");
  return static_cast<std::size_t>(label * num_classes_ + prediction);
}

std::int64_t ConfusionMatrix::count(std::int64_t label, std::int64_t prediction) const {
  return counts_[index(label, prediction)];
}

std::int64_t ConfusionMatrix::total() const noexcept {
  return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
}

std::int64_t ConfusionMatrix::label_count(std::int64_t label) const {
  std::int64_t sum = 0;
  for (std::int64_t p = 0; p < num_classes_; ++p) sum += count(label, p);
  return sum;
}

std::int64_t ConfusionMatrix::prediction_count(std::int64_t prediction) const {
  std::int64_t sum = 0;
  for (std::int64_t l = 0; l < num_classes_; ++l) sum += count(l, prediction);
  return sum;
}

double ConfusionMatrix::accuracy() const noexcept {
  std::int64_t hits = 0;
  for (std::int64_t c = 0; c < num_classes_; ++c) hits += counts_[static_cast<std::size_t>(c * num_classes_ + c)];
  return ratio(static_cast<double>(hits), static_cast<double>(total()));
}

double ConfusionMatrix::precision(std::int64_t label) const {
  return ratio(static_cast<double>(count(label, label)), static_cast<double>(prediction_count(label)));
}

double ConfusionMatrix::recall(std::int64_t label) const {
  return ratio(static_cast<double>(count(label, label)), static_cast<double>(label_count(label)));
}

double ConfusionMatrix::f1(std::int64_t label) const {
  return ratio(2.0 * static_cast<double>(count(label, label)),
               static_cast<double>(label_count(label) + prediction_count(label)));
}

}  // namespace heddle::data
