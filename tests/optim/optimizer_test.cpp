// Update rules against sequences worked out by hand, groups, freezing, clipping and non-finite gradients.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/optim/adam.h"
#include "engine/optim/averaged_weights.h"
#include "engine/optim/sgd.h"
#include "tests/support/catch.h"

using namespace heddle;
using namespace heddle::optim;

namespace {

// Three parameters of 1, 2 and 3 elements, all one.
class Three final : public nn::Module {
 public:
  Three() {
    for (int i = 0; i < 3; ++i) {
      p.push_back(register_parameter(std::string(1, static_cast<char>('a' + i)), {i + 1}));
      p.back().mutable_data().copy_from(Tensor::full({i + 1}, 1.0));
    }
  }
  std::string description() const override { return "Three"; }
  std::vector<Variable> p;
};

struct Fixture {
  Three model;
  nn::ParameterBuffer buffer{model};

  void set_gradients(double value) {
    for (Variable& p : model.p) p.grad().copy_from(Tensor::full(p.shape(), value));
  }
  float value(std::size_t i) const { return model.p[i].data().to_vector<float>().back(); }
};

// One update with all gradients 1; returns the last element of parameter a.
float update_with_ones(Fixture& f, Optimizer& optimizer) {
  optimizer.zero_grad();
  f.set_gradients(1.0);
  optimizer.step();
  return f.value(0);
}

}  // namespace

TEST_CASE("SGD with momentum walks the known sequence") {
  Fixture f;
  Sgd sgd(f.buffer, 0.1, SgdParams{.momentum = 0.9});
  for (const double expected : {0.9, 0.71, 0.439, 0.0951})
    CHECK(update_with_ones(f, sgd) == Approx(expected).epsilon(1e-5));
  CHECK(sgd.step_count() == 4);
  // The padding between the segments stays zero.
  CHECK(f.buffer.data().to_vector<float>()[1] == 0.f);
}

TEST_CASE("Nesterov momentum and weight decay follow PyTorch's definition") {
  Fixture f;
  Sgd sgd(f.buffer, 0.1, SgdParams{.momentum = 0.5, .weight_decay = 0.2, .nesterov = true});
  // g = 1 + 0.2 w; v = 0.5 v + g; w -= 0.1 (g + 0.5 v)
  double w = 1, v = 0;
  for (int i = 0; i < 4; ++i) {
    const double g = 1 + 0.2 * w;
    v = 0.5 * v + g;
    w -= 0.1 * (g + 0.5 * v);
    CHECK(update_with_ones(f, sgd) == Approx(w).epsilon(1e-5));
  }
}

TEST_CASE("Adam walks the known sequence") {
  Fixture f;
  Adam adam(f.buffer, 0.1);
  for (const double expected : {0.9, 0.8, 0.7}) CHECK(update_with_ones(f, adam) == Approx(expected).epsilon(1e-5));
}

TEST_CASE("AdamW decays the weight itself, Adam its gradient") {
  Fixture f;
  AdamW adamw(f.buffer, 0.1, AdamParams{.weight_decay = 0.5});
  // A constant gradient of 1 gives a normalised step of 1: w = w (1 - 0.1 0.5) - 0.1.
  double w = 1;
  for (int i = 0; i < 3; ++i) {
    w = w * 0.95 - 0.1;
    CHECK(update_with_ones(f, adamw) == Approx(w).epsilon(1e-5));
  }
  CHECK(std::string(adamw.name()) == "adamw");

  Fixture g;
  Adam adam(g.buffer, 0.1, AdamParams{.weight_decay = 0.5});
  CHECK(update_with_ones(g, adam) == Approx(0.9).epsilon(1e-5));  // the first step is normalised, decay or not
  CHECK(std::string(adam.name()) == "adam");
}

TEST_CASE("groups have their own settings, and a parameter in no group stays") {
  Fixture f;
  const auto named = [&](const std::string& name) {
    return select_parameters(f.buffer, [&](const nn::ParameterSegment& s) { return s.name == name; });
  };
  Sgd sgd(f.buffer, 0.1,
          std::vector<Sgd::Group>{{named("a"), {.learning_rate_scale = 2.0}}, {named("c"), {.weight_decay = 1.0}}});
  f.set_gradients(1.0);
  sgd.step();
  CHECK(f.value(0) == Approx(0.8));
  CHECK(f.value(1) == 1.f);
  CHECK(f.value(2) == Approx(0.8));
  CHECK_THROWS_WITH(Sgd(f.buffer, 0.1, std::vector<Sgd::Group>{{named("a"), {}}, {{{0, 2}}, {}}}),
                    Catch::Contains("'a'") && Catch::Contains("two groups"));
  CHECK_THROWS_AS(Sgd(f.buffer, 0.1, std::vector<Sgd::Group>{{{{0, 4}}, {}}}), InvalidArgument);
}

TEST_CASE("the settings of an optimiser can be written as fields in braces, one alone too") {
  Fixture f;
  const Sgd sgd(f.buffer, 0.1, {.momentum = 0.9});
  const Adam adam(f.buffer, 0.1, {.beta1 = 0.8});
  const AdamW adamw(f.buffer, 0.1, {.weight_decay = 0.1});
  CHECK(std::string(sgd.name()) == "sgd");
  CHECK(std::string(adam.name()) == "adam");
  CHECK(std::string(adamw.name()) == "adamw");
}

TEST_CASE("AdamW decays its groups as it does all parameters") {
  Fixture f;
  const std::vector<Adam::Group> groups = {{{{0, f.buffer.segments().size()}}, {.weight_decay = 0.5}}};
  AdamW adamw(f.buffer, 0.1, groups);
  double w = 1;
  for (int i = 0; i < 3; ++i) {
    w = w * 0.95 - 0.1;
    CHECK(update_with_ones(f, adamw) == Approx(w).epsilon(1e-5));
  }
}

TEST_CASE("select_parameters joins neighbours to ranges") {
  Fixture f;
  const auto all = select_parameters(f.buffer, [](const nn::ParameterSegment&) { return true; });
  REQUIRE(all.size() == 1);
  CHECK(all[0].first == 0);
  CHECK(all[0].last == 3);
  CHECK(select_parameters(f.buffer, [](const nn::ParameterSegment& s) { return s.numel != 2; }).size() == 2);
}

TEST_CASE("a frozen parameter stays as it is, momentum or not, and goes on when thawed") {
  Fixture f;
  Sgd sgd(f.buffer, 0.1, SgdParams{.momentum = 0.9, .weight_decay = 0.1});
  f.model.p[1].set_requires_grad(false);
  for (int i = 0; i < 2; ++i) {
    sgd.zero_grad();
    f.model.p[0].grad().copy_from(Tensor::full({1}, 1.0));
    f.model.p[2].grad().copy_from(Tensor::full({3}, 1.0));
    sgd.step();
  }
  CHECK(f.value(1) == 1.f);
  CHECK(f.value(0) == f.value(2));
  CHECK(f.value(0) < 1.f);
  f.model.p[1].set_requires_grad(true);
  update_with_ones(f, sgd);
  CHECK(f.value(1) == Approx(1 - 0.1 * 1.1));
}

TEST_CASE("sums of gradients are divided by the weight sum on request") {
  Fixture f;
  Sgd sgd(f.buffer, 0.1);
  sgd.zero_grad();
  f.set_gradients(32.0);
  f.buffer.tail().tensor().copy_from(Tensor::from_values<float>({64, 1, 1, 64, 0, 0, 0, 0}, {tail_slot::kCount}));
  sgd.step({.divide_by_weight_sum = true, .want_gradient_norm = true});
  CHECK(f.value(0) == Approx(0.95));
  CHECK(sgd.gradient_norm() == Approx(0.5 * std::sqrt(6.0)));
}

TEST_CASE("a division by a weight sum that no loss has left is refused, and changes nothing") {
  Fixture f;
  Sgd sgd(f.buffer, 0.1);
  const float before = f.value(0);
  for (int i = 0; i < 2; ++i) {
    sgd.zero_grad();
    f.set_gradients(32.0);
    CHECK_THROWS_WITH(sgd.step({.divide_by_weight_sum = true}), Catch::Contains("CrossEntropyOptions::stats"));
    CHECK(f.value(0) == before);
    CHECK(sgd.step_count() == i);
    sgd.zero_grad();
    f.set_gradients(0.0);
    f.buffer.tail().tensor().copy_from(Tensor::from_values<float>({64, 1, 1, 64, 0, 0, 0, 0}, {tail_slot::kCount}));
    sgd.step({.divide_by_weight_sum = true});
  }
}

TEST_CASE("a gradient above the largest norm is scaled to it, one below is left alone") {
  Fixture f;
  Sgd sgd(f.buffer, 1.0);
  f.set_gradients(2.0);  // six elements: norm 2 sqrt(6)
  sgd.step({.max_gradient_norm = 1.0});
  CHECK(sgd.gradient_norm() == Approx(2 * std::sqrt(6.0)));
  CHECK(f.value(2) == Approx(1 - 1 / std::sqrt(6.0)).epsilon(1e-5));
  Fixture g;
  Sgd small(g.buffer, 1.0);
  g.set_gradients(0.25);
  small.step({.max_gradient_norm = 1.0});
  CHECK(g.value(2) == Approx(0.75));
}

TEST_CASE("a gradient with NaN or infinity changes nothing, counts no step, and the next good one works") {
  Fixture f;
  Sgd sgd(f.buffer, 0.1, SgdParams{.momentum = 0.9});
  update_with_ones(f, sgd);
  const std::vector<float> weights = f.buffer.data().to_vector<float>();
  const std::vector<float> momentum = sgd.state_tensors()[0].second.to_vector<float>();
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    sgd.zero_grad();
    f.set_gradients(1.0);
    f.model.p[2].grad().mutable_host_data<float>()[1] = static_cast<float>(bad);
    sgd.step();
    CHECK(sgd.last_step_skipped());
    CHECK(sgd.step_count() == 1);
    CHECK(f.buffer.data().to_vector<float>() == weights);
    CHECK(sgd.state_tensors()[0].second.to_vector<float>() == momentum);
  }
  CHECK(update_with_ones(f, sgd) == Approx(0.71));
  CHECK_FALSE(sgd.last_step_skipped());
  // A flag in the tail (from the loss, or from another rank) does the same.
  sgd.zero_grad();
  f.set_gradients(1.0);
  f.buffer.tail().tensor().mutable_host_data<float>()[tail_slot::kNonFinite] = 1;
  sgd.step();
  CHECK(sgd.last_step_skipped());
  CHECK(f.value(0) == Approx(0.71));
}

TEST_CASE("the rates of a schedule are used one by one, and the last one holds") {
  Fixture f;
  Sgd sgd(f.buffer, 1.0);
  const std::vector<double> rates = {0.5, 0.25};
  for (int epoch = 0; epoch < 2; ++epoch) {
    sgd.set_learning_rates(rates);
    CHECK(sgd.learning_rate() == 0.5);
    const float before = f.value(0);
    CHECK(update_with_ones(f, sgd) == before - 0.5f);
    CHECK(update_with_ones(f, sgd) == before - 0.75f);
    CHECK(update_with_ones(f, sgd) == before - 1.0f);
  }
  sgd.set_learning_rate(0.125);
  const float before = f.value(0);
  CHECK(update_with_ones(f, sgd) == before - 0.125f);
  CHECK(sgd.step_count() == 7);
}

TEST_CASE("more ranges than one call takes are one update") {
  class Many final : public nn::Module {
   public:
    Many() {
      for (int i = 0; i < 40; ++i) {
        p.push_back(register_parameter(join_text("p", i), {4}));
        p.back().mutable_data().copy_from(Tensor::full({4}, 1.0));
      }
    }
    std::string description() const override { return "Many"; }
    std::vector<Variable> p;
  };
  Many model;
  nn::ParameterBuffer buffer(model);
  Sgd sgd(buffer, 0.5);
  for (std::size_t i = 1; i < model.p.size(); i += 2) model.p[i].set_requires_grad(false);
  for (int step = 1; step <= 2; ++step) {
    sgd.zero_grad();
    for (std::size_t i = 0; i < model.p.size(); i += 2) model.p[i].grad().copy_from(Tensor::full({4}, 1.0));
    sgd.step();
    for (std::size_t i = 0; i < model.p.size(); ++i) {
      const float expected = i % 2 == 0 ? 1.0f - 0.5f * static_cast<float>(step) : 1.0f;
      CHECK(model.p[i].data().to_vector<float>() == std::vector<float>(4, expected));
    }
    CHECK(sgd.step_count() == step);
    CHECK(sgd.state().read(step_slot::kSequence) == step);
  }
}

TEST_CASE("a training that halts stays halted until its counters are restored") {
  Fixture f;
  Sgd sgd(f.buffer, 0.5);
  const StepOptions options{.halt_on_non_finite = true};
  f.set_gradients(std::numeric_limits<double>::infinity());
  sgd.step(options);
  sgd.zero_grad();
  f.set_gradients(1.0);
  sgd.step(options);
  CHECK(f.value(0) == 1.f);
  CHECK(sgd.step_count() == 0);
  sgd.restore_counters(0, 0.5);
  sgd.step(options);
  CHECK(f.value(0) == 0.5f);
}

TEST_CASE("options out of range are refused with their values") {
  Fixture f;
  CHECK_THROWS_WITH(Sgd(f.buffer, -0.5), Catch::Contains("-0.5"));
  CHECK_THROWS_WITH(Sgd(f.buffer, 0.1, SgdParams{.momentum = 1.5}), Catch::Contains("1.5"));
  CHECK_THROWS_AS(Sgd(f.buffer, 0.1, SgdParams{.nesterov = true}), InvalidArgument);
  CHECK_THROWS_AS(Adam(f.buffer, 0.1, AdamParams{.beta2 = 1.0}), InvalidArgument);
  CHECK_THROWS_AS(Adam(f.buffer, 0.1, AdamParams{.weight_decay = -1}), InvalidArgument);
}

TEST_CASE("an average of the weights follows them, and forgets quickly at first") {
  Fixture f;
  Sgd sgd(f.buffer, 0.1);
  CHECK_FALSE(sgd.averages().defined());
  CHECK(sgd.state_tensors().empty());
  sgd.average_weights(0.3);
  double weight = 1, average = 1;
  for (int t = 1; t <= 6; ++t) {
    update_with_ones(f, sgd);
    weight -= 0.1;
    const double kept = std::min(0.3, (1.0 + t) / (10.0 + t));
    average = kept * average + (1 - kept) * weight;
    CHECK(sgd.averages().to_vector<float>()[0] == Approx(average));
  }
  REQUIRE(sgd.state_tensors().size() == 1);
  CHECK(sgd.state_tensors()[0].first == "average");
  // The padding between the segments stays zero.
  CHECK(sgd.averages().to_vector<float>()[1] == 0.f);
  for (const double decay : {0.0, 1.0, -0.1, std::nan("")})
    CHECK_THROWS_AS(sgd.average_weights(decay), InvalidArgument);
}

TEST_CASE("averages come after the update's own state, and frozen parameters stay as they are in them") {
  Fixture f;
  Adam adam(f.buffer, 0.1);
  adam.average_weights(0.9);
  REQUIRE(adam.state_tensors().size() == 3);
  CHECK(adam.state_tensors()[2].first == "average");
  f.model.p[1].set_requires_grad(false);
  adam.zero_grad();
  for (const std::size_t i : {0u, 2u}) f.model.p[i].grad().copy_from(Tensor::full(f.model.p[i].shape(), 1.0));
  adam.step();
  const std::vector<float> averages = adam.averages().to_vector<float>();
  CHECK(averages[0] < 1.0f);
  CHECK(averages[4] == 1.0f);
}

TEST_CASE("work sees the averages in the place of the weights, which come back whatever happens") {
  Fixture f;
  Sgd sgd(f.buffer, 0.1);
  int calls = 0;
  use_averages(sgd, [&] { ++calls; });
  sgd.average_weights(0.9);
  update_with_ones(f, sgd);
  const auto sees_average = [&] {
    ++calls;
    CHECK(f.value(2) == Approx(2 / 11.0 + 0.9 * 9 / 11.0));
  };
  use_averages(sgd, sees_average);
  CHECK(f.value(2) == Approx(0.9));
  CHECK_THROWS_WITH(use_averages(sgd,
                                 [&] {
                                   sees_average();
                                   throw Error("no luck");
                                 }),
                    "no luck");
  CHECK(f.value(2) == Approx(0.9));
  CHECK(calls == 3);
}
