// Cross-entropy at the edges (C06), its options and its statistics.
#include <cmath>
#include <limits>

#include "engine/autograd/backward.h"
#include "engine/device/caching_allocator.h"
#include "engine/ops/ops.h"
#include "tests/ops/op_test_support.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::testing;
using ops::Reduction;

namespace {
using List = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Result {
  double loss;
  List gradient;
};

// Loss and gradient of one row.
Result one_row(const List& logits, std::int64_t target, double smoothing, Reduction reduction, DType dtype,
               Device device) {
  Variable x = leaf({1, static_cast<std::int64_t>(logits.size())}, logits, dtype, device);
  const Variable loss =
      ops::cross_entropy(x, labels({target}).to(device), {.label_smoothing = smoothing, .reduction = reduction});
  backward(loss);
  return {loss.data().item(), list(x.grad())};
}

template <class Body>
void for_each_setting(Body body) {
  for (const Device device : test_devices()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      if (dtype == DType::f64 && !device.is_cpu()) continue;
      for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
        INFO(device << ' ' << dtype << ", reduction " << static_cast<int>(reduction));
        body([=](const List& logits, std::int64_t target, double smoothing = 0) {
          return one_row(logits, target, smoothing, reduction, dtype, device);
        });
      }
    }
  }
}
}  // namespace

TEST_CASE("cross-entropy of extreme, infinite and NaN logits") {
  for_each_setting([](const auto& run) {
    const auto agrees = [](const Result& result, double loss, const List& gradient) {
      INFO("loss " << result.loss << ", expected " << loss);
      CHECK(differs({result.loss}, {loss}) == "");
      CHECK(differs(result.gradient, gradient) == "");
      double sum = 0;
      for (const double g : result.gradient) sum += g;
      CHECK(std::abs(sum) < 1e-6);
    };
    agrees(run({1000, -1000}, 0), 0, {0, 0});
    agrees(run({1000, -1000}, 1), 2000, {1, -1});
    agrees(run({1000, -1000}, 1, 0.1), 1900, {0.95, -0.95});
    List equal(10, 0.1);
    equal[3] = -0.9;
    agrees(run(List(10, 1e38), 3), 2.3025851, equal);
    agrees(run(List(10, -1e38), 3), 2.3025851, equal);
    agrees(run({2, 0, 0}, 0), 0.2395448, {0.7869860 - 1, 0.1065070, 0.1065070});
    agrees(run({2, 0, 0}, 0, 0.1), 0.3728781, {-0.1463473, 0.0731736, 0.0731736});
    agrees(run({-kInfinity, 0}, 1), 0, {0, 0});
    agrees(run({-kInfinity, 0}, 0), kInfinity, {-1, 1});
    CHECK(std::isnan(run({kNaN, 0}, 0).loss));
    CHECK(std::isnan(run({0, kNaN}, 0).loss));
  });
}

TEST_CASE("ignored rows count neither in the mean nor in the gradient") {
  Variable x = leaf({3, 2}, {0, 0, 5, 1, 2, 2});
  const Variable loss = ops::cross_entropy(x, labels({0, -100, 1}));
  CHECK(loss.data().item() == Approx(std::log(2.0)));
  backward(loss);
  CHECK(differs(list(x.grad()), {-0.25, 0.25, 0, 0, 0.25, -0.25}) == "");
  x.zero_grad();
  backward(ops::cross_entropy(x, labels({0, 7, 1}), {.ignore_index = 7, .reduction = Reduction::sum}));
  CHECK(differs(list(x.grad()), {-0.5, 0.5, 0, 0, 0.5, -0.5}) == "");
  CHECK(std::isnan(ops::cross_entropy(x, labels({-100, -100, -100})).data().item()));
  CHECK(ops::cross_entropy(x, labels({-100, -100, -100}), {.reduction = Reduction::sum}).data().item() == 0);
}

TEST_CASE("class weights weigh each row and the mean's divisor") {
  Variable x = leaf({2, 2}, {0, 0, 0, std::log(3.0)});  // p = (1/2, 1/2), (1/4, 3/4)
  const Tensor weight = values({2}, {1, 3});
  const double mean = (1 * std::log(2.0) + 3 * std::log(4.0 / 3)) / 4;
  const Variable loss = ops::cross_entropy(x, labels({0, 1}), {.class_weight = weight});
  CHECK(loss.data().item() == Approx(mean));
  backward(loss);
  CHECK(differs(list(x.grad()), {-0.5 / 4, 0.5 / 4, 3 * 0.25 / 4, -3 * 0.25 / 4}) == "");
  // With smoothing every class's term has the class's own weight: 0.9 w_y nll + 0.05 sum_k w_k (-log p_k).
  const Variable smooth = ops::cross_entropy(
      x, labels({0, 1}), {.label_smoothing = 0.1, .class_weight = weight, .reduction = Reduction::none});
  const double first = 0.9 * std::log(2.0) + 0.05 * (std::log(2.0) + 3 * std::log(2.0));
  const double second = 0.9 * 3 * std::log(4.0 / 3) + 0.05 * (std::log(4.0) + 3 * std::log(4.0 / 3));
  CHECK(differs(list(smooth), {first, second}) == "");
}

TEST_CASE("logits may have more dimensions; a loss without reduction has the labels' shape") {
  const reference::Array logits = random_array({2, 3, 4});
  const Tensor targets = labels({0, 1, 2, 3, 0, 1});
  const Variable flat =
      ops::cross_entropy(tensor_of(reference::Array({6, 4}, logits.values)), targets, {.reduction = Reduction::none});
  const Variable deep = ops::cross_entropy(tensor_of(logits), targets.reshape({2, 3}), {.reduction = Reduction::none});
  CHECK(deep.shape() == Shape{2, 3});
  CHECK(list(deep) == list(flat));
  const Variable single = ops::cross_entropy(values({3}, {2, 0, 0}), Tensor::full({}, 0, DType::i64));
  CHECK(single.data().item() == Approx(0.2395448).epsilon(1e-6));
}

TEST_CASE("statistics add up over calls: weight sum, loss, correct, samples, non-finite") {
  for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::none}) {
    const Tensor stats = Tensor::zeros({tail_slot::kCount});
    const Variable x = values({3, 2}, {0, 0, 5, 1, 0, 1});
    const ops::CrossEntropyOptions options{.reduction = reduction, .stats = stats};
    const double nll1 = std::log(2.0), nll3 = std::log(1 + std::exp(-1.0));
    ops::cross_entropy(x, labels({0, -100, 1}), options);
    CHECK(differs(list(stats), {2, nll1 + nll3, 2, 2, 0, 0, 0, 0}) == "");
    const Variable y = ops::cross_entropy(x, labels({1, 1, 0}), options);
    CHECK(differs(list(stats), {5, 2 * nll1 + 2 * nll3 + 1 + std::log(1 + std::exp(-4.0)) + 4, 2, 5, 0, 0, 0, 0}) ==
          "");
    // The mean is this call's own, whatever the statistics held before.
    if (reduction == Reduction::mean) {
      CHECK(y.data().item() == Approx((nll1 + 4 + std::log(1 + std::exp(-4.0)) + 1 + nll3) / 3));
    }
    ops::cross_entropy(values({1, 2}, {kNaN, 0}), labels({0}), options);
    CHECK(list(stats)[tail_slot::kNonFinite] > 0);
  }
}

TEST_CASE("sums that count as zeros are zeros for a reader, whatever was left there") {
  ops::LossStats stats(Tensor::zeros({tail_slot::kCount}));
  const std::vector<float> zeros(tail_slot::kCount, 0.0f);
  for (int step = 0; step < 3; ++step) {
    stats.zero();
    CHECK(stats.read().to_vector<float>() == zeros);
    // As a recorded step does, whose replay tells nobody.
    Tensor same_memory = stats.place();
    same_memory.mutable_host_data<float>()[0] = 7;
  }
}

TEST_CASE("the sum's gradient is computed in the forward pass: the backward pass starts with it as it is") {
  const CachingAllocator& allocator = allocator_for(Device::cpu());
  Variable x = leaf({3, 2}, {0, 1, 2, 3, 4, 5});
  const Tensor targets = labels({0, 1, 0});
  List expected;
  for (int pass = 0; pass < 2; ++pass) {
    const Variable loss = ops::cross_entropy(x * 1.0, targets, {.reduction = Reduction::sum});
    x.zero_grad();
    const auto before = allocator.stats().requests;
    backward(loss);
    if (pass > 0) CHECK(allocator.stats().requests == before);
    expected = list(x.grad());
  }
  // Anywhere else than at the start the value of its gradient counts.
  x.zero_grad();
  backward(3.0 * ops::cross_entropy(x, targets, {.reduction = Reduction::sum}));
  for (double& g : expected) g *= 3;
  CHECK(differs(list(x.grad()), expected) == "");
  x.zero_grad();
  backward(ops::cross_entropy(x, targets, {.reduction = Reduction::sum}), {}, {.gradient = Tensor::full({}, 3.0)});
  CHECK(differs(list(x.grad()), expected) == "");
}

TEST_CASE("a retained cross-entropy gives the same gradient twice") {
  Variable x = leaf({2, 2}, {0, 1, 2, 3});
  const Variable h = x * 1.0;
  // A second contribution to h must not be added into the saved gradient.
  const Variable loss = ops::cross_entropy(h + h, labels({0, 1}), {.reduction = Reduction::sum});
  backward(loss, {}, {.retain_graph = true});
  List once = list(x.grad());
  backward(loss);
  for (double& g : once) g *= 2;
  CHECK(list(x.grad()) == once);
}

TEST_CASE("bf16 logits: the loss is f32, and gradients are those of f32 rounded once") {
  // 1/112 is 0.2 % away from the next bf16 number.
  const reference::Array logits = random_array({112, 10}, -3, 3, 2);
  std::vector<std::int64_t> classes;
  for (std::int64_t i = 0; i < 112; ++i) classes.push_back(i % 10);
  const Tensor targets = labels(classes);
  for (const Device device : {Device::cpu()}) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
      Variable narrow(tensor_of(logits, DType::bf16, device), true);
      Variable wide(ops::to(narrow.data(), DType::f32).data(), true);
      const Variable loss = ops::cross_entropy(narrow, targets.to(device), {.reduction = reduction});
      const Variable expected = ops::cross_entropy(wide, targets.to(device), {.reduction = reduction});
      CHECK(loss.dtype() == DType::f32);
      CHECK(loss.data().item() == Approx(expected.data().item()).epsilon(1e-6));
      backward(loss);
      backward(expected);
      CHECK(narrow.grad().dtype() == DType::bf16);
      const List got = list(narrow.grad()), right = list(wide.grad());
      double got_sum = 0, right_sum = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        CHECK(std::abs(got[i] - right[i]) <= 0x1p-7 * std::abs(right[i]));
        got_sum += std::abs(got[i]);
        right_sum += std::abs(right[i]);
      }
      // A factor that was rounded to bf16 would move all of them the same way.
      CHECK(got_sum == Approx(right_sum).epsilon(5e-4));
    }
  }
}
