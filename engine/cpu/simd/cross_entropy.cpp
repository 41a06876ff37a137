// Softmax, cross-entropy, its gradient and the count of correct rows in one pass, with rows in lanes: as many rows as a
// vector has lanes are transposed, so that ten classes cost ten vector exponentials.
//
// With m = max of the row, s = sum of e^(x[j] - m) over all j but the one where the maximum is first reached:
//   -log p[j] = log1p(s) + (m - x[j])
// Both terms are >= 0, so nothing cancels, and a confident row keeps its digits.
#include "kernels.h"
#include "lanes.h"
#include "vec_math.h"

namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE {
namespace {

// Kahan's sum: thousands of classes lose no more digits than ten.
struct Accumulator {
  Vec sum = {};
  Vec lost = {};
  HEDDLE_INLINE void add(Vec value) {
    const Vec corrected = value - lost;
    const Vec next = sum + corrected;
    lost = (next - sum) - corrected;
    sum = next;
  }
};

// The maximum of every lane and the class where it is first reached; NaN is above everything.
HEDDLE_INLINE void row_maximum(const float* x, std::int64_t classes, Vec* maximum, IntVec* position) {
  Vec best = load(x);
  IntVec at = {};
  for (std::int64_t j = 1; j < classes; ++j) {
    const Vec value = load(x + j * kLanes);
    const IntVec better = (value > best) | (value != value);
    best = select(better, value, best);
    at = better ? static_cast<std::int32_t>(j) - IntVec{} : at;
  }
  *maximum = best;
  *position = at;
}

// Turns logits into e^(x - m) in place and returns the sum without the maximum's own 1.
HEDDLE_INLINE Vec exponentials(float* x, std::int64_t classes, Vec maximum, IntVec position) {
  Accumulator others;
  for (std::int64_t j = 0; j < classes; ++j) {
    const Vec e = vec_exp(load(x + j * kLanes) - maximum);
    store(x + j * kLanes, e);
    const IntVec is_maximum = position == static_cast<std::int32_t>(j);
    others.add(select(is_maximum & (e == e), Vec{}, e));
  }
  return others.sum;
}

// sum of c[j] * (m - x[j]) and of c[j], for label smoothing.
HEDDLE_INLINE Vec smoothing_sum(const CrossEntropy& args, const float* x, Vec maximum, float* weight_sum) {
  Accumulator distance;
  *weight_sum = 0.0f;
  for (std::int64_t j = 0; j < args.classes; ++j) {
    const float weight = args.class_weights != nullptr ? args.class_weights[j] : 1.0f;
    *weight_sum += weight;
    if (weight != 0.0f) distance.add((maximum - load(x + j * kLanes)) * weight);
  }
  return distance.sum;
}

}  // namespace

std::size_t cross_entropy_scratch_floats(std::int64_t classes) { return static_cast<std::size_t>(classes * kLanes); }

CrossEntropySums cross_entropy(const CrossEntropy& args, Range rows) {
  CrossEntropySums sums = {0.0, 0.0, 0, 0, 0};
  const std::int64_t classes = args.classes;
  const float smoothing = args.label_smoothing;
  const float smoothing_share = smoothing / static_cast<float>(classes);
  float* x = args.scratch;
  for (std::int64_t first = rows.begin; first < rows.end; first += kLanes) {
    const std::int64_t count = min64(kLanes, rows.end - first);
    images_to_lanes(args.logits + first * classes, {classes, count, classes}, kLanes, x);

    float target_weight[kLanes] = {}, target_logit[kLanes] = {};
    std::int32_t target[kLanes];
    bool bad[kLanes] = {};
    for (std::int64_t i = 0; i < kLanes; ++i) {
      target[i] = -1;
      if (i >= count) continue;
      const std::int64_t t = args.targets[first + i];
      if (t == args.ignore_index) continue;
      if (t < 0 || t >= classes) {
        bad[i] = true;
        ++sums.bad_target;
        continue;
      }
      target[i] = static_cast<std::int32_t>(t);
      target_weight[i] = args.class_weights != nullptr ? args.class_weights[t] : 1.0f;
      target_logit[i] = x[t * kLanes + i];
    }

    Vec maximum;
    IntVec position;
    row_maximum(x, classes, &maximum, &position);
    float all_weights = 0.0f;
    const Vec distances = smoothing != 0.0f ? smoothing_sum(args, x, maximum, &all_weights) : Vec{};
    const Vec others = exponentials(x, classes, maximum, position);
    const Vec log_sum = vec_log1p(others);
    const Vec weight = load(target_weight);
    Vec loss = (log_sum + (maximum - load(target_logit))) * weight * (1.0f - smoothing);
    if (smoothing != 0.0f) loss += (distances + log_sum * all_weights) * smoothing_share;

    float loss_lanes[kLanes];
    std::int32_t position_lanes[kLanes];
    store(loss_lanes, loss);
    *reinterpret_cast<UnalignedIntVec*>(position_lanes) = position;
    for (std::int64_t i = 0; i < count; ++i) {
      float row_loss = 0.0f;
      if (target[i] >= 0) {
        row_loss = loss_lanes[i];
        sums.weight += target_weight[i];
        sums.correct += position_lanes[i] == target[i] ? 1 : 0;
        ++sums.counted;
      } else if (bad[i]) {
        row_loss = __builtin_nanf("");
      }
      sums.loss += row_loss;
      if (args.loss != nullptr) args.loss[first + i] = row_loss;
    }

    if (args.dlogits == nullptr) continue;
    // (1 - e) c[t] (p[j] - [j == t]) + e / classes * (sum of c * p[j] - c[j]), 0 in rows that do not count.
    const IntVec targets = *reinterpret_cast<const UnalignedIntVec*>(target);
    const IntVec counts = targets >= 0;
    const Vec own = weight * ((1.0f - smoothing) * args.gradient_scale);
    const Vec spread = (own + broadcast(smoothing_share * args.gradient_scale * all_weights)) / (others + 1.0f);
    for (std::int64_t j = 0; j < classes; ++j) {
      const float class_weight = args.class_weights != nullptr ? args.class_weights[j] : 1.0f;
      Vec gradient = load(x + j * kLanes) * spread;
      gradient -= select(targets == static_cast<std::int32_t>(j), own, Vec{});
      gradient -= broadcast(smoothing_share * args.gradient_scale * class_weight);
      store(x + j * kLanes, select(counts, gradient, Vec{}));
    }
    lanes_to_images(x, {classes, count, classes}, kLanes, {.dst = args.dlogits + first * classes});
  }
  return sums;
}

}  // namespace heddle::cpu::simd::HEDDLE_SIMD_NAMESPACE
