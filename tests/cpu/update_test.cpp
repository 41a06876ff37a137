// Optimiser updates against the references, and the sequences that PyTorch gives.
#include <cmath>
#include <limits>

#include "engine/backend/backend.h"
#include "tests/reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;

namespace {

Backend& cpu() { return backend_for(Device::cpu()); }

Array scalars_of(double learning_rate, double step, double scale, double skip) {
  Array s({step_scalar::kCount});
  s[step_scalar::kLearningRate] = learning_rate;
  s[step_scalar::kStep] = step;
  s[step_scalar::kGradientScale] = scale;
  s[step_scalar::kSkip] = skip;
  return s;
}
Array tail_of(double weight_sum, double non_finite) {
  Array t({tail_slot::kCount});
  t[tail_slot::kWeightSum] = weight_sum;
  t[tail_slot::kNonFinite] = non_finite;
  return t;
}
const std::int64_t kSizes[] = {0, 1, 7, 100, 44426, 70001};

}  // namespace

TEST_CASE("SGD agrees with PyTorch's formula") {
  const SgdParams rows[] = {{},
                            {.weight_decay = 0.1},
                            {.momentum = 0.9},
                            {.momentum = 0.9, .weight_decay = 0.01, .learning_rate_scale = 0.5},
                            {.momentum = 0.8, .weight_decay = 0.01, .nesterov = true}};
  for (const SgdParams& params : rows) {
    for (const std::int64_t n : kSizes) {
      for (const double skip : {0.0, 1.0}) {
        const bool momentum = params.momentum != 0;
        std::vector<ParityOutput> outputs = {{{n}, {}, random_array({n}, -1, 1, 3)}};
        if (momentum) outputs.push_back({{n}, {}, random_array({n}, -1, 1, 4)});
        expect_parity({.name = join_text("sgd ", n, " momentum ", params.momentum, " skip ", skip),
                       .inputs = {random_input({n}, -9, 9), exact_input(scalars_of(0.25, 3, 0.125, skip), DType::f32)},
                       .outputs = outputs,
                       .call =
                           [&](auto& in, auto& out, WriteMode) {
                             Tensor none;
                             cpu().sgd_update(out[0], in[0], momentum ? out[1] : none, params, in[1]);
                           },
                       .reference =
                           [&](const Arrays& in) {
                             auto next = reference::sgd_update(in[2], in[0], momentum ? in[3] : Array(), params, in[1]);
                             Arrays all{next.w};
                             if (momentum) all.push_back(next.velocity);
                             return all;
                           }});
      }
    }
  }
}

TEST_CASE("Adam and AdamW agree with PyTorch's formula") {
  const AdamParams rows[] = {
      {},
      {.weight_decay = 0.1},
      {.beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1, .learning_rate_scale = 0.5, .decoupled = true}};
  for (const AdamParams& params : rows) {
    for (const std::int64_t n : kSizes) {
      for (const double skip : {0.0, 1.0}) {
        for (const double step : {1.0, 10.0}) {
          expect_parity(
              {.name = join_text("adam ", n, " step ", step, " skip ", skip),
               .inputs = {random_input({n}, -9, 9), exact_input(scalars_of(0.25, step, 0.125, skip), DType::f32)},
               .outputs = {{{n}, {}, random_array({n}, -1, 1, 3)},
                           {{n}, {}, random_array({n}, -1, 1, 4)},
                           {{n}, {}, random_array({n}, 0.1, 1, 5)}},
               .call = [&](auto& in, auto& out,
                           WriteMode) { cpu().adam_update(out[0], in[0], out[1], out[2], params, in[1]); },
               .reference =
                   [&](const Arrays& in) {
                     auto next = reference::adam_update(in[2], in[0], in[3], in[4], params, in[1]);
                     return Arrays{next.w, next.first_moment, next.second_moment};
                   },
               .tolerance = 2});
        }
      }
    }
  }
}

TEST_CASE("optimisers walk the sequences that PyTorch walks") {
  const Tensor gradient = Tensor::full({1}, 1);
  Tensor w = Tensor::full({1}, 1), velocity = Tensor::zeros({1});
  for (const double expected : {0.9, 0.71, 0.439, 0.0951}) {
    cpu().sgd_update(w, gradient, velocity, {.momentum = 0.9}, tensor_of(scalars_of(0.1, 1, 1, 0)));
    CHECK(w.item() == Approx(expected).epsilon(1e-6));
  }
  Tensor m = Tensor::zeros({1}), v = Tensor::zeros({1});
  w = Tensor::full({1}, 1);
  double step = 0;
  for (const double expected : {0.9, 0.8, 0.7}) {
    cpu().adam_update(w, gradient, m, v, {}, tensor_of(scalars_of(0.1, ++step, 1, 0)));
    CHECK(w.item() == Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("prepare_update scales, clips and notices what is not finite") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const std::int64_t n : kSizes) {
    for (const double max_norm : {0.0, 0.5, 1e6}) {
      for (const bool want_norm : {false, true}) {
        for (const double weight_sum : {0.0, 16.0}) {
          for (const double bad : {0.0, inf, -inf, nan}) {
            for (const double raised : {0.0, 1.0}) {
              if (bad != 0 && n == 0) continue;
              Array gradients = random_array({n}, -9, 9, 2);
              if (bad != 0) gradients[n - 1] = bad;
              Tensor scalars = tensor_of(scalars_of(0.1, 7, 0, 0));
              cpu().prepare_update(tensor_of(gradients), tensor_of(tail_of(weight_sum, raised)), max_norm, want_norm,
                                   scalars);
              Array expected = reference::prepare_update(gradients, tail_of(weight_sum, raised), max_norm, want_norm,
                                                         scalars_of(0.1, 7, 0, 0));
              Array result = array_of(scalars);
              CHECK(result[step_scalar::kSkip] == (bad != 0 || raised != 0 ? 1 : 0));
              // Scale and norm mean nothing for a gradient that is not finite.
              if (bad != 0) result[step_scalar::kGradientScale] = expected[step_scalar::kGradientScale] = 0;
              if (bad != 0) result[step_scalar::kGradientNorm] = expected[step_scalar::kGradientNorm] = 0;
              CHECK(compare(result, expected, 1e-5) == "");
            }
          }
        }
      }
    }
  }
}

TEST_CASE("the largest floats are finite for prepare_update") {
  Tensor scalars = Tensor::zeros({step_scalar::kCount});
  const Tensor gradients = Tensor::full({1000}, 3e38), tail = tensor_of(tail_of(1, 0));
  for (const bool want_norm : {false, true}) {
    cpu().prepare_update(gradients, tail, 0, want_norm, scalars);
    CHECK(scalars.to_vector<float>()[step_scalar::kSkip] == 0);
  }
}
