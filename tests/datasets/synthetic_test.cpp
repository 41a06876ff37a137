#include "datasets/synthetic.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "datasets/unpacked_reader.h"
#include "engine/core/error.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::datasets;

namespace {

// Softmax regression with plain mini-batch gradient descent on pixels scaled to [0,1].
class LinearModel {
 public:
  explicit LinearModel(const ImageDataset& set)
      : features_(static_cast<std::size_t>(set.height * set.width * set.channels)),
        classes_(static_cast<std::size_t>(set.num_classes)),
        w_(features_ * classes_),
        b_(classes_) {}

  double accuracy(const ImageDataset& set) const {
    std::vector<float> logits(classes_);
    std::int64_t correct = 0;
    for (std::size_t i = 0; i < set.labels.size(); ++i) {
      forward(set, i, logits);
      correct += std::max_element(logits.begin(), logits.end()) - logits.begin() == set.labels[i];
    }
    return static_cast<double>(correct) / static_cast<double>(set.count);
  }

  void step(const ImageDataset& set, std::size_t begin, std::size_t n, float learning_rate) {
    std::vector<float> logits(classes_);
    std::vector<float> dw(w_.size());
    std::vector<float> db(classes_);
    for (std::size_t i = begin; i < begin + n; ++i) {
      forward(set, i, logits);
      const float top = *std::max_element(logits.begin(), logits.end());
      float sum = 0;
      for (float& v : logits) sum += v = std::exp(v - top);
      for (std::size_t k = 0; k < classes_; ++k) {
        const float g = (logits[k] / sum - (set.labels[i] == k ? 1.0f : 0.0f)) / static_cast<float>(n);
        db[k] += g;
        for (std::size_t j = 0; j < features_; ++j) dw[k * features_ + j] += g * pixel(set, i, j);
      }
    }
    for (std::size_t j = 0; j < w_.size(); ++j) w_[j] -= learning_rate * dw[j];
    for (std::size_t k = 0; k < classes_; ++k) b_[k] -= learning_rate * db[k];
  }

 private:
  float pixel(const ImageDataset& set, std::size_t i, std::size_t j) const {
    return static_cast<float>(set.images[i * features_ + j]) / 255.0f;
  }
  void forward(const ImageDataset& set, std::size_t i, std::vector<float>& logits) const {
    for (std::size_t k = 0; k < classes_; ++k) {
      logits[k] = b_[k];
      for (std::size_t j = 0; j < features_; ++j) logits[k] += w_[k * features_ + j] * pixel(set, i, j);
    }
  }

  std::size_t features_;
  std::size_t classes_;
  std::vector<float> w_;
  std::vector<float> b_;
};

}  // namespace

TEST_CASE("a linear model learns the synthetic set, but not at once") {
  const ImageDatasetPair pair = make_synthetic({.n_train = 3200, .n_test = 500});
  LinearModel model(pair.train);
  model.step(pair.train, 0, 64, 0.1f);
  const double first = model.accuracy(pair.test);
  CHECK(first < 0.8);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (std::size_t begin = 0; begin + 64 <= 3200; begin += 64) model.step(pair.train, begin, 64, 0.1f);
  }
  const double last = model.accuracy(pair.test);
  INFO("accuracy after one step " << first << ", after 200 steps " << last);
  CHECK(last > 0.95);
}

TEST_CASE("the synthetic set is the same everywhere and depends on the seed") {
  const ImageDatasetPair pair = make_synthetic({.n_train = 100, .n_test = 20});
  // Pinned: these numbers must come out on every compiler and machine.
  CHECK(crc32_of(pair.train.images) == 0x65277c52u);
  CHECK(crc32_of(pair.test.images) == 0xc05ec9d7u);
  CHECK(crc32_of(pair.train.labels) == 0x76092479u);
  CHECK(pair.name == "synthetic");
  CHECK(make_synthetic({.n_train = 100, .n_test = 20, .seed = 2}).train.images != pair.train.images);
  CHECK(make_synthetic({.n_train = 100, .n_test = 20, .seed = 2}).train.labels != pair.train.labels);
}

TEST_CASE("a longer synthetic set begins with the shorter one") {
  const ImageDataset a = make_synthetic({.n_train = 33, .n_test = 1}).train;
  const ImageDataset b = make_synthetic({.n_train = 70, .n_test = 1}).train;
  CHECK(std::equal(a.images.begin(), a.images.end(), b.images.begin()));
  CHECK(std::equal(a.labels.begin(), a.labels.end(), b.labels.begin()));
}

TEST_CASE("the synthetic set has the sizes and classes that were asked for") {
  const ImageDatasetPair pair =
      make_synthetic({.n_train = 21, .n_test = 7, .height = 9, .width = 32, .channels = 3, .num_classes = 7});
  CHECK(pair.train.images.size() == 21 * 9 * 32 * 3);
  CHECK(pair.test.labels.size() == 7);
  CHECK(pair.test.class_names.size() == 7);
  for (int k = 0; k < 7; ++k) {
    CHECK(std::count(pair.train.labels.begin(), pair.train.labels.end(), k) == 3);
    CHECK(std::count(pair.test.labels.begin(), pair.test.labels.end(), k) == 1);
  }
  CHECK_NOTHROW(make_synthetic({.n_train = 1, .n_test = 1, .height = 1, .width = 1, .num_classes = 1}));
}

TEST_CASE("bad options of the synthetic set are refused by name") {
  CHECK_THROWS_WITH(make_synthetic({.n_train = 0}), "synthetic: n_train is 0, expected 1 to 2147483648");
  CHECK_THROWS_AS(make_synthetic({.height = 0}), InvalidArgument);
  CHECK_THROWS_AS(make_synthetic({.num_classes = 257}), InvalidArgument);
  CHECK_THROWS_AS(make_synthetic({.n_train = std::int64_t{1} << 31, .height = 4096, .width = 4096, .channels = 64}),
                  InvalidArgument);
}
