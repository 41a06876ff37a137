#include <cmath>
#include <limits>

#include "tests/cpu/simd_support.h"

namespace heddle::cpu::simd::test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Result {
  Floats loss, gradient;
  CrossEntropySums sums;
};

Result run(const SimdKernels& k, CrossEntropy args, const Floats& logits, const std::vector<std::int64_t>& targets) {
  args.rows = static_cast<std::int64_t>(targets.size());
  args.classes = static_cast<std::int64_t>(logits.size()) / args.rows;
  Result r{filled(args.rows), filled(logits.size()), {}};
  Floats scratch = filled(k.cross_entropy_scratch_floats(args.classes));
  args.logits = logits.data();
  args.targets = targets.data();
  args.loss = r.loss.data();
  args.dlogits = r.gradient.data();
  args.scratch = scratch.data();
  r.sums = k.cross_entropy(args, {0, args.rows});
  return r;
}

TEST_CASE("SIMD cross-entropy matches a computation in double") {
  Random random;
  for (const SimdKernels* k : available_tables()) {
    for (const std::int64_t classes : {1, 2, 10, 37, 1000}) {
      for (const double smoothing : {0.0, 0.1}) {
        for (const bool weighted : {false, true}) {
          for (const float spread : {1.0f, 8.0f}) {
            CAPTURE(k->isa, classes, smoothing, weighted, spread);
            const std::int64_t rows = 37;
            const Floats x = random.uniform(rows * classes, -spread, spread);
            const Floats weights = random.uniform(classes, 0.1f, 2.0f);
            std::vector<std::int64_t> targets;
            for (std::int64_t i = 0; i < rows; ++i) targets.push_back(i % 9 == 4 ? -100 : random.below(classes));
            const float scale = 0.5f;
            CrossEntropy args;
            args.class_weights = weighted ? weights.data() : nullptr;
            args.label_smoothing = static_cast<float>(smoothing);
            args.gradient_scale = scale;
            const Result r = run(*k, args, x, targets);
            double loss_sum = 0, weight_sum = 0;
            std::int64_t correct = 0, counted = 0;
            const double e = args.label_smoothing;
            for (std::int64_t i = 0; i < rows; ++i) {
              const std::int64_t t = targets[at(i)];
              double largest = -INFINITY, sum = 0, gradient_sum = 0;
              std::int64_t argmax = 0;
              for (std::int64_t j = 0; j < classes; ++j) {
                if (x[at(i * classes + j)] > largest) argmax = j;
                largest = std::max<double>(largest, x[at(i * classes + j)]);
              }
              for (std::int64_t j = 0; j < classes; ++j) {
                if (j != argmax) sum += std::exp(x[at(i * classes + j)] - largest);
              }
              const double log_sum = std::log1p(sum);
              double loss = 0, all_weights = 0;
              for (std::int64_t j = 0; j < classes && t >= 0; ++j) {
                const double c = weighted ? weights[at(j)] : 1.0;
                const double nll = log_sum + (largest - x[at(i * classes + j)]);
                loss += ((j == t ? (1 - e) : 0.0) + e / static_cast<double>(classes)) * c * nll;
                all_weights += c;
              }
              CHECK(std::fabs(r.loss[at(i)] - loss) <= 1e-6 * std::fabs(loss));
              const double own = t < 0 ? 0.0 : (1 - e) * (weighted ? weights[at(t)] : 1.0);
              double worst = 0;
              for (std::int64_t j = 0; j < classes; ++j) {
                const double p = std::exp(x[at(i * classes + j)] - largest - log_sum);
                const double c = weighted ? weights[at(j)] : 1.0;
                double expected = own * (p - (j == t ? 1.0 : 0.0));
                if (t >= 0) expected += e / static_cast<double>(classes) * (all_weights * p - c);
                worst = std::max(worst, std::fabs(r.gradient[at(i * classes + j)] - scale * expected));
                gradient_sum += r.gradient[at(i * classes + j)];
              }
              CHECK(worst < 1e-6);
              CHECK(std::fabs(gradient_sum) < 1e-6);
              if (t < 0) continue;
              loss_sum += loss;
              weight_sum += weighted ? weights[at(t)] : 1.0;
              counted += 1;
              correct += argmax == t ? 1 : 0;
            }
            CHECK(r.sums.loss == Approx(loss_sum).epsilon(1e-6));
            CHECK(r.sums.weight == Approx(weight_sum).epsilon(1e-6));
            CHECK(r.sums.correct == correct);
            CHECK(r.sums.counted == counted);
            CHECK(r.sums.bad_target == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("SIMD cross-entropy is right at the extremes") {
  for (const SimdKernels* k : available_tables()) {
    CAPTURE(k->isa);
    for (const float huge : {1e38f, -1e38f}) {
      const Result r = run(*k, {}, {huge, huge, huge, huge}, {2});
      CHECK(r.loss[0] == Approx(std::log(4.0)).epsilon(1e-6));
      CHECK(r.gradient == Floats{0.25f, 0.25f, -0.75f, 0.25f});
    }
    Result r = run(*k, {}, {1000, -1000}, {1});
    CHECK(r.loss[0] == 2000.0f);
    CHECK(r.gradient == Floats{1.0f, -1.0f});
    r = run(*k, {}, {-kInfinity, 0}, {1});
    CHECK(r.loss[0] == 0.0f);
    CHECK(r.gradient == Floats{0.0f, 0.0f});
    r = run(*k, {}, {-kInfinity, 0}, {0});
    CHECK(r.loss[0] == kInfinity);
    CHECK(r.gradient == Floats{-1.0f, 1.0f});
    r = run(*k, {}, {1, kNan, 2, 3, 4, 5}, {0, 0});
    CHECK(std::isnan(r.loss[0]));
    CHECK(r.loss[1] > 0.0f);
    CHECK(std::isnan(r.sums.loss));
    r = run(*k, {}, {1, 2, 3, 4}, {2, -1});
    CHECK(r.sums.bad_target == 2);
    CHECK(std::isnan(r.loss[0]));
    CHECK(r.gradient == Floats{0.0f, 0.0f, 0.0f, 0.0f});
    r = run(*k, {}, {3, 3, 1}, {1});  // the first of equal logits is the answer
    CHECK(r.sums.correct == 0);
    r = run(*k, {}, {40, 0}, {0});  // e^-40 is lost beside 1, not here
    CHECK(r.loss[0] == Approx(std::exp(-40.0)).epsilon(1e-6));
  }
}

TEST_CASE("SIMD cross-entropy may write its gradient over the logits") {
  for (const SimdKernels* k : available_tables()) {
    Random random;
    Floats x = random.uniform(21 * 10);
    const std::vector<std::int64_t> targets(21, 3);
    const Result r = run(*k, {}, x, targets);
    Floats scratch = filled(k->cross_entropy_scratch_floats(10));
    CrossEntropy args;
    args.rows = 21;
    args.classes = 10;
    args.logits = x.data();
    args.targets = targets.data();
    args.dlogits = x.data();
    args.scratch = scratch.data();
    k->cross_entropy(args, {0, 16});
    k->cross_entropy(args, {16, 21});
    CHECK(x == r.gradient);
  }
}

}  // namespace
}  // namespace heddle::cpu::simd::test
