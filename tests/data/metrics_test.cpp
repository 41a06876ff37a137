// Counts and shares against a table worked out by hand.
#include "engine/data/metrics.h"

#include <cmath>

#include "engine/backend/op_params.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::data;

TEST_CASE("running loss and accuracy weigh batches by their size") {
  RunningMetrics metrics;
  CHECK(std::isnan(metrics.loss()));
  CHECK(std::isnan(metrics.accuracy()));
  metrics.add(8.0, 4.0, 1, 4);
  metrics.add(Tensor::from_values<float>({1, 0.5, 1, 1, 0, 0, 0, 0}, {tail_slot::kCount}));
  CHECK(metrics.loss() == Approx(8.5 / 5));
  CHECK(metrics.accuracy() == Approx(0.4));
  CHECK(metrics.samples() == 5);
  metrics.reset();
  CHECK(metrics.samples() == 0);
  CHECK_THROWS_AS(metrics.add(Tensor::zeros({3})), InvalidArgument);
}

TEST_CASE("the confusion matrix counts pairs and gives precision, recall and f1 per class") {
  ConfusionMatrix matrix(3);
  // label:      0 0 0 1 1 2
  // prediction: 0 0 1 1 0 1
  matrix.add(Tensor::from_values<std::int64_t>({0, 0, 0, 1, 1, 2}, {6}),
             Tensor::from_values<std::int64_t>({0, 0, 1, 1, 0, 1}, {6}));
  CHECK(matrix.total() == 6);
  CHECK(matrix.count(0, 1) == 1);
  CHECK(matrix.count(1, 0) == 1);
  CHECK(matrix.accuracy() == Approx(0.5));
  CHECK(matrix.precision(0) == Approx(2.0 / 3));
  CHECK(matrix.recall(0) == Approx(2.0 / 3));
  CHECK(matrix.precision(1) == Approx(1.0 / 3));
  CHECK(matrix.recall(1) == Approx(0.5));
  CHECK(matrix.f1(1) == Approx(0.4));
  CHECK(std::isnan(matrix.precision(2)));
  CHECK(matrix.recall(2) == 0.0);
  CHECK(matrix.f1(2) == 0.0);
}

TEST_CASE("a class out of range is refused and nothing is counted") {
  ConfusionMatrix matrix(2);
  const std::vector<std::int64_t> labels{0, 1}, predictions{0, 2};
  CHECK_THROWS_WITH(matrix.add(labels, predictions), Catch::Contains("prediction 2"));
  CHECK(matrix.total() == 0);
  CHECK_THROWS_AS(matrix.add(labels, std::vector<std::int64_t>{0}), InvalidArgument);
  CHECK_THROWS_AS(ConfusionMatrix(0), InvalidArgument);
}
