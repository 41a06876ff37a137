// What a run reports about its predictions: mean loss, accuracy, confusion matrix. Host arithmetic in double and int64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../tensor/tensor.h"

namespace heddle::data {

// Running loss and accuracy over batches of any size: sums divided by weights, so the last, smaller batch counts by its
// size.
class RunningMetrics {
 public:
  // loss_sum: sum of sample losses, weight_sum: what it is to be divided by (the samples, without class weights).
  void add(double loss_sum, double weight_sum, std::int64_t correct, std::int64_t samples);
  // The sums of a gradient buffer's tail (tail_slot), or of any tensor that cross_entropy's stats filled. Blocks on a
  // GPU.
  void add(const Tensor& tail);
  void reset() { *this = {}; }

  // Mean loss and share of correct samples; NaN before the first sample.
  double loss() const noexcept;
  double accuracy() const noexcept;
  double loss_sum() const noexcept { return loss_sum_; }
  double weight_sum() const noexcept { return weight_sum_; }
  std::int64_t correct() const noexcept { return correct_; }
  std::int64_t samples() const noexcept { return samples_; }

 private:
  double loss_sum_ = 0;
  double weight_sum_ = 0;
  std::int64_t correct_ = 0;
  std::int64_t samples_ = 0;
};

// Counts of (label, prediction) pairs.
class ConfusionMatrix {
 public:
  // Throws: InvalidArgument unless num_classes >= 1.
  explicit ConfusionMatrix(std::int64_t num_classes);

  // Throws: InvalidArgument if the sizes differ or a class is out of range; nothing is counted then.
  void add(std::span<const std::int64_t> labels, std::span<const std::int64_t> predictions);
  // labels i64 (N), predictions i64 (N), for example argmax(logits, 1). Blocks on a GPU.
  void add(const Tensor& labels, const Tensor& predictions);

  std::int64_t num_classes() const noexcept { return num_classes_; }
  std::int64_t count(std::int64_t label, std::int64_t prediction) const;
  std::int64_t total() const noexcept;
  // Samples with this label; samples predicted as this class.
  std::int64_t label_count(std::int64_t label) const;
  std::int64_t prediction_count(std::int64_t prediction) const;
  // Share of samples on the diagonal; NaN if there are none.
  double accuracy() const noexcept;
  // Of what was predicted as the class, the share that is; NaN if nothing was.
  double precision(std::int64_t label) const;
  // Of what is the class, the share that was predicted so; NaN if nothing is.
  double recall(std::int64_t label) const;
  // Harmonic mean of both, 2 hits / (labels + predictions); NaN if the class never occurs.
  double f1(std::int64_t label) const;

 private:
  std::size_t index(std::int64_t label, std::int64_t prediction) const;

  std::int64_t num_classes_;
  std::vector<std::int64_t> counts_;  // row: label
};

}  // namespace heddle::data
