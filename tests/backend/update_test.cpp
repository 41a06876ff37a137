// Optimiser updates against the references, the sequences that PyTorch gives, and what a step leaves for the next one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/backend/backend.h"
#include "engine/core/parallel.h"
#include "reference/reference.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"
#include "tests/support/parity.h"

using namespace heddle;
using namespace heddle::testing;
using reference::Array;
using reference::Arrays;
using reference::UpdateValues;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Array tail_of(double weight_sum, double non_finite = 0) {
  Array t({tail_slot::kCount});
  t[tail_slot::kWeightSum] = weight_sum;
  t[tail_slot::kLossSum] = 12;
  t[tail_slot::kCorrect] = 3;
  t[tail_slot::kSamples] = 5;
  t[tail_slot::kNonFinite] = non_finite;
  return t;
}

// A training of `done` updates at this rate.
struct Training {
  Training(double rate, std::int64_t done, Device device = Device::cpu()) : state(device) {
    state.set_learning_rates({&rate, 1});
    state.set(step_slot::kStep, done);
  }
  // What an update left for the host, once the device is done with it.
  StatusRecord record(std::int64_t sequence) const {
    runtime_for(state.device()).synchronize(current_stream(state.device()));
    return state.host_records()[sequence % kStatusRecords];
  }
  StepState state;
};

// Flat buffers of n ones; the tail holds the weight sum 4.
UpdateTensors flat_buffers(std::int64_t n, Device device) {
  return {.weights = Tensor::full({n}, 1, DType::f32, device),
          .gradients = Tensor::full({n}, 4, DType::f32, device),
          .tail = tensor_of(tail_of(4), DType::f32, device),
          .first_state = Tensor::zeros({n}, DType::f32, device),
          .second_state = Tensor::zeros({n}, DType::f32, device)};
}
void set(Tensor& x, std::int64_t i, float value) { x.narrow(i, 1).copy_from(Tensor::full({1}, double{value})); }
constexpr UpdateParams kMean{.divide_by_weight_sum = true};

struct Case {
  std::int64_t n, begin, numel;
};
const Case kCases[] = {{0, 0, 0}, {4, 0, 4}, {100, 8, 88}, {44428, 0, 44428}, {70004, 4, 70000}};

}  // namespace

TEST_CASE("SGD agrees with PyTorch's formula") {
  const SgdParams rows[] = {{},
                            {.weight_decay = 0.1},
                            {.momentum = 0.9},
                            {.momentum = 0.9, .weight_decay = 0.01, .learning_rate_scale = 0.5},
                            {.momentum = 0.8, .weight_decay = 0.01, .nesterov = true}};
  for (const SgdParams& params : rows) {
    for (const Case& c : kCases) {
      const bool momentum = params.momentum != 0;
      const SgdRange range{c.begin, c.numel, params};
      std::vector<ParityOutput> outputs = {{{c.n}, {}, random_array({c.n}, -1, 1, 3)}};
      if (momentum) outputs.push_back({{c.n}, {}, random_array({c.n}, -1, 1, 4)});
      expect_parity_everywhere({.name = join_text("sgd ", c.n, " momentum ", params.momentum),
                                .inputs = {random_input({c.n}, -9, 9), exact_input(tail_of(8), DType::f32)},
                                .outputs = outputs,
                                .call =
                                    [&](auto& in, auto& out, WriteMode) {
                                      Training training(0.25, 2, out[0].device());
                                      UpdateTensors tensors{.weights = out[0], .gradients = in[0], .tail = in[1]};
                                      if (momentum) tensors.first_state = out[1];
                                      backend_of(out).sgd_update(tensors, {&range, 1}, kMean, training.state);
                                    },
                                .reference =
                                    [&](const Arrays& in) {
                                      auto next =
                                          reference::sgd_update(in[2], in[0], momentum ? in[3] : Array(), range,
                                                                {.learning_rate = 0.25, .gradient_scale = 0.125});
                                      Arrays all{next.w};
                                      if (momentum) all.push_back(next.velocity);
                                      return all;
                                    },
                                .any_alignment = false,
                                .dtypes = {DType::f32}});
    }
  }
}

TEST_CASE("Adam and AdamW agree with PyTorch's formula") {
  const AdamParams rows[] = {
      {},
      {.weight_decay = 0.1},
      {.beta1 = 0.8, .beta2 = 0.99, .eps = 1e-3, .weight_decay = 0.1, .learning_rate_scale = 0.5, .decoupled = true}};
  for (const AdamParams& params : rows) {
    for (const Case& c : kCases) {
      for (const std::int64_t done : {0, 9}) {
        const AdamRange range{c.begin, c.numel, params};
        expect_parity_everywhere(
            {.name = join_text("adam ", c.n, " after ", done),
             .inputs = {random_input({c.n}, -9, 9), exact_input(tail_of(8), DType::f32)},
             .outputs = {{{c.n}, {}, random_array({c.n}, -1, 1, 3)},
                         {{c.n}, {}, random_array({c.n}, -1, 1, 4)},
                         {{c.n}, {}, random_array({c.n}, 0.1, 1, 5)}},
             .call =
                 [&](auto& in, auto& out, WriteMode) {
                   Training training(0.25, done, out[0].device());
                   UpdateTensors tensors{.weights = out[0],
                                         .gradients = in[0],
                                         .tail = in[1],
                                         .first_state = out[1],
                                         .second_state = out[2]};
                   backend_of(out).adam_update(tensors, {&range, 1}, kMean, training.state);
                 },
             .reference =
                 [&](const Arrays& in) {
                   auto next = reference::adam_update(
                       in[2], in[0], in[3], in[4], range,
                       {.learning_rate = 0.25, .gradient_scale = 0.125, .step = static_cast<double>(done + 1)});
                   return Arrays{next.w, next.first_moment, next.second_moment};
                 },
             .any_alignment = false,
             .tolerance = 2,
             .dtypes = {DType::f32}});
      }
    }
  }
}

TEST_CASE("averages follow the updated weights of the ranges, slowly once enough updates are done") {
  constexpr double kDecay = 0.99;
  for (const std::int64_t done : {0, 9, 5000}) {
    const double t = static_cast<double>(done + 1);
    const double kept = std::min(kDecay, (1 + t) / (10 + t));
    for (const Case& c : kCases) {
      const auto averaged = [&](const Array& weights, Array averages) {
        for (std::int64_t i = c.begin; i < c.begin + c.numel; ++i) {
          averages[i] = kept * averages[i] + (1 - kept) * weights[i];
        }
        return averages;
      };
      const SgdRange sgd{c.begin, c.numel, {.momentum = 0.9, .nesterov = true}};
      const AdamRange adam{c.begin, c.numel, {}};
      const UpdateParams params{.divide_by_weight_sum = true, .average_decay = kDecay};
      const auto check = [&](const char* name, auto update, auto reference) {
        expect_parity_everywhere({.name = join_text(name, " ", c.n, " with averages after ", done),
                                  .inputs = {random_input({c.n}, -9, 9), exact_input(tail_of(8), DType::f32)},
                                  .outputs = {{{c.n}, {}, random_array({c.n}, -1, 1, 3)},
                                              {{c.n}, {}, random_array({c.n}, 0.1, 1, 4)},
                                              {{c.n}, {}, random_array({c.n}, 0.1, 1, 5)},
                                              {{c.n}, {}, random_array({c.n}, -1, 1, 6)}},
                                  .call =
                                      [&](auto& in, auto& out, WriteMode) {
                                        Training training(0.25, done, out[0].device());
                                        UpdateTensors tensors{.weights = out[0],
                                                              .gradients = in[0],
                                                              .tail = in[1],
                                                              .first_state = out[1],
                                                              .second_state = out[2],
                                                              .averages = out[3]};
                                        update(backend_of(out), tensors, training.state);
                                      },
                                  .reference = reference,
                                  .any_alignment = false,
                                  .tolerance = 2,
                                  .dtypes = {DType::f32}});
      };
      check(
          "sgd",
          [&](Backend& backend, UpdateTensors& tensors, StepState& state) {
            backend.sgd_update(tensors, {&sgd, 1}, params, state);
          },
          [&](const Arrays& in) {
            auto next =
                reference::sgd_update(in[2], in[0], in[3], sgd, {.learning_rate = 0.25, .gradient_scale = 0.125});
            return Arrays{next.w, next.velocity, in[4], averaged(next.w, in[5])};
          });
      check(
          "adam",
          [&](Backend& backend, UpdateTensors& tensors, StepState& state) {
            backend.adam_update(tensors, {&adam, 1}, params, state);
          },
          [&](const Arrays& in) {
            auto next = reference::adam_update(in[2], in[0], in[3], in[4], adam,
                                               {.learning_rate = 0.25, .gradient_scale = 0.125, .step = t});
            return Arrays{next.w, next.first_moment, next.second_moment, averaged(next.w, in[5])};
          });
    }
  }
}

TEST_CASE("a skipped update and a halted training leave the averages alone") {
  for (const Device device : test_devices()) {
    UpdateTensors tensors = flat_buffers(40000, device);
    tensors.averages = Tensor::full({40000}, 3, DType::f32, device);
    tensors.tail = tensor_of(tail_of(4, 1), DType::f32, device);
    const SgdRange range{0, 40000, {}};
    Training training(0.5, 0, device);
    const UpdateParams params{.divide_by_weight_sum = true, .halt_on_non_finite = true, .average_decay = 0.9};
    for (int i = 0; i < 2; ++i) {
      backend_for(device).sgd_update(tensors, {&range, 1}, params, training.state);
      CHECK(tensors.averages.to_vector<float>() == std::vector<float>(40000, 3.0f));
      tensors.tail = tensor_of(tail_of(4), DType::f32, device);
    }
    training.state.set(step_slot::kHalted, 0);
    backend_for(device).sgd_update(tensors, {&range, 1}, params, training.state);
    // The first that counts: 2/11 of the average stay, the weights are 1 - 0.5.
    CHECK(tensors.averages.to_vector<float>()[39999] == Approx(3 * 2 / 11.0 + 0.5 * 9 / 11.0));
  }
}

TEST_CASE("optimisers walk the sequences that PyTorch walks") {
  for (const Device device : test_devices()) {
    UpdateTensors tensors = flat_buffers(4, device);
    const SgdRange sgd{0, 4, {.momentum = 0.9}};
    Training training(0.1, 0, device);
    for (const float expected : {0.9f, 0.71f, 0.439f, 0.0951f}) {
      backend_for(device).sgd_update(tensors, {&sgd, 1}, kMean, training.state);
      CHECK(tensors.weights.to_vector<float>()[3] == Approx(expected).epsilon(1e-6));
    }
    tensors = flat_buffers(4, device);
    const AdamRange adam{0, 4, {}};
    training.state.set(step_slot::kStep, 0);
    for (const float expected : {0.9f, 0.8f, 0.7f}) {
      backend_for(device).adam_update(tensors, {&adam, 1}, kMean, training.state);
      CHECK(tensors.weights.to_vector<float>()[3] == Approx(expected).epsilon(1e-6));
    }
  }
}

TEST_CASE("an update moves the counters, takes the rate of its batch, and leaves a record") {
  for (const Device device : test_devices()) {
    Training training(1, 0, device);
    const std::vector<double> rates = {0.5, 0.25};
    training.state.set_learning_rates(rates);
    UpdateTensors tensors = flat_buffers(8, device);
    const SgdRange range{0, 8, {}};
    double w = 1;
    for (std::int64_t step = 1; step <= 70; ++step) {
      backend_for(device).sgd_update(tensors, {&range, 1}, kMean, training.state);
      const double rate = step == 1 ? 0.5 : 0.25;
      w -= rate;
      CHECK(tensors.weights.to_vector<float>()[0] == static_cast<float>(w));
      for (const std::int64_t slot : {step_slot::kStep, step_slot::kBatch, step_slot::kRandom, step_slot::kSequence}) {
        CHECK(training.state.read(slot) == step);
      }
      const StatusRecord record = training.record(step);
      CHECK(record.sequence == step);
      CHECK(record.step == step);
      CHECK(record.loss_sum == 12);
      CHECK(record.weight_sum == 4);
      CHECK(record.correct == 3);
      CHECK(record.samples == 5);
      CHECK(record.learning_rate == static_cast<float>(rate));
      CHECK(std::isnan(record.gradient_norm));
      CHECK(record.non_finite == 0);
    }
  }
}

TEST_CASE("ranges have their own settings, what is between them stays, and the last call finishes the update") {
  for (const Device device : test_devices()) {
    Training training(0.5, 0, device);
    UpdateTensors tensors = flat_buffers(24, device);
    tensors.bf16_weights = Tensor::zeros({24}, DType::bf16, device);
    const SgdRange first[] = {{0, 4, {}}, {8, 4, {.learning_rate_scale = 2}}},
                   second[] = {{16, 8, {.weight_decay = 1}}};
    UpdateParams params = kMean;
    params.finish = false;
    backend_for(device).sgd_update(tensors, first, params, training.state);
    CHECK(training.state.read(step_slot::kSequence) == 0);
    params.finish = true;
    backend_for(device).sgd_update(tensors, second, params, training.state);
    CHECK(training.state.read(step_slot::kStep) == 1);
    const std::vector<float> w = tensors.weights.to_vector<float>();
    const float expected[] = {0.5f, 1, 0, 1, 0, 0};
    for (std::size_t i = 0; i < 24; ++i) CHECK(w[i] == expected[i / 4]);
    // The copy has the weights of the ranges alone.
    const Array copy = array_of(tensors.bf16_weights);
    for (std::int64_t i = 0; i < 24; ++i) {
      const bool updated = i / 4 != 1 && i / 4 != 3;
      CHECK(copy[i] == (updated ? static_cast<double>(expected[i / 4]) : 0));
    }
    CHECK_THROWS_WITH(backend_for(device).sgd_update(tensors, std::vector<SgdRange>(17), kMean, training.state),
                      Catch::Contains("17 ranges"));
  }
}

TEST_CASE("a step that meets NaN or infinity changes no weight, and halts the training if that is asked for") {
  for (const Device device : test_devices()) {
    for (const bool halt : {false, true}) {
      for (const double bad : {0.0, kInf, -kInf, kNan}) {
        INFO("halt " << halt << " bad " << bad);
        Training training(0.5, 3, device);
        UpdateTensors tensors = flat_buffers(40000, device);
        const AdamRange range{0, 40000, {}};
        const UpdateParams params{.divide_by_weight_sum = true, .halt_on_non_finite = halt};
        // The last case is a loss that is not finite with a gradient that is.
        if (bad == 0) {
          tensors.tail = tensor_of(tail_of(4, 1), DType::f32, device);
        } else {
          set(tensors.gradients, 39999, static_cast<float>(bad));
        }
        backend_for(device).adam_update(tensors, {&range, 1}, params, training.state);
        // A GPU does not read the gradient twice: what is finite has been updated when it meets what is not.
        if (device.is_cpu() || bad == 0) {
          CHECK(tensors.weights.to_vector<float>() == std::vector<float>(40000, 1.f));
          CHECK(tensors.first_state.to_vector<float>() == std::vector<float>(40000, 0.f));
        }
        const std::vector<float> weights = tensors.weights.to_vector<float>();
        CHECK(weights[39999] == (bad == 0 ? weights[0] : 1.f));
        CHECK(training.state.read(step_slot::kStep) == 3);
        CHECK(training.state.read(step_slot::kBatch) == 1);
        CHECK(training.state.read(step_slot::kSkipped) == 1);
        CHECK(training.state.read(step_slot::kHalted) == (halt ? 1 : 0));
        CHECK(training.record(1).non_finite != 0);
        // The next good step works, or is a no-op that says so.
        tensors.gradients = Tensor::full({40000}, 4, DType::f32, device);
        tensors.tail = tensor_of(tail_of(4), DType::f32, device);
        backend_for(device).adam_update(tensors, {&range, 1}, params, training.state);
        CHECK((tensors.weights.to_vector<float>()[7] == weights[7]) == halt);
        CHECK(training.state.read(step_slot::kStep) == (halt ? 3 : 4));
        CHECK(training.state.read(step_slot::kBatch) == (halt ? 1 : 2));
        CHECK(training.record(2).sequence == 2);
        CHECK((training.record(2).non_finite != 0) == halt);
      }
    }
  }
}

TEST_CASE("a weight that would be infinite keeps its value and counts as one") {
  for (const Device device : test_devices()) {
    Training training(1e30, 0, device);
    UpdateTensors tensors = flat_buffers(8, device);
    set(tensors.gradients, 5, 3e38f);
    const SgdRange range{0, 8, {}};
    backend_for(device).sgd_update(tensors, {&range, 1}, {}, training.state);
    CHECK(tensors.weights.to_vector<float>()[5] == 1.f);
    CHECK(training.state.read(step_slot::kStep) == 0);
    CHECK(training.record(1).non_finite != 0);
  }
}

TEST_CASE("prepare_update scales, clips and notices what is not finite") {
  for (const Device device : test_devices()) {
    Training training(0.1, 0, device);
    for (const std::int64_t n : {0, 4, 8, 100, 44428, 70004}) {
      for (const double max_norm : {0.0, 0.5, 1e6}) {
        for (const bool divide : {false, true}) {
          for (const double weight_sum : {0.0, 16.0}) {
            for (const double bad : {0.0, kInf, -kInf, kNan}) {
              for (const double raised : {0.0, 1.0}) {
                if (bad != 0 && n == 0) continue;
                Array gradients = random_array({n}, -9, 9, 2);
                if (bad != 0) gradients[n - 1] = bad;
                Tensor scalars = Tensor::zeros({step_scalar::kCount}, DType::f32, device);
                backend_for(device).prepare_update(tensor_of(gradients, DType::f32, device),
                                                   tensor_of(tail_of(weight_sum, raised), DType::f32, device), max_norm,
                                                   {.divide_by_weight_sum = divide}, training.state, scalars);
                Array expected = reference::prepare_update(gradients, tail_of(weight_sum, raised), max_norm, divide);
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
}

TEST_CASE("an update uses the scale, the norm and the verdict that were prepared") {
  for (const Device device : test_devices()) {
    Training training(1, 0, device);
    UpdateTensors tensors = flat_buffers(8, device);
    tensors.scalars = Tensor::from_values<float>({0.125f, 3.5f, 0, 0}, {step_scalar::kCount}, device);
    const SgdRange range{0, 8, {}};
    backend_for(device).sgd_update(tensors, {&range, 1}, {}, training.state);
    CHECK(tensors.weights.to_vector<float>()[0] == 0.5f);
    CHECK(training.record(1).gradient_norm == 3.5f);
    tensors.scalars = Tensor::from_values<float>({0.125f, 3.5f, 1, 0}, {step_scalar::kCount}, device);
    backend_for(device).sgd_update(tensors, {&range, 1}, {}, training.state);
    CHECK(tensors.weights.to_vector<float>()[0] == 0.5f);
    CHECK(training.state.read(step_slot::kSkipped) == 1);
  }
}

TEST_CASE("the largest floats are finite") {
  for (const Device device : test_devices()) {
    Training training(1e-38, 0, device);
    UpdateTensors tensors = flat_buffers(1000, device);
    tensors.gradients = Tensor::full({1000}, 3e38, DType::f32, device);
    Tensor scalars = Tensor::zeros({step_scalar::kCount}, DType::f32, device);
    backend_for(device).prepare_update(tensors.gradients, tensors.tail, 0, {}, training.state, scalars);
    CHECK(scalars.to_vector<float>()[step_scalar::kSkip] == 0);
    const SgdRange range{0, 1000, {}};
    backend_for(device).sgd_update(tensors, {&range, 1}, {}, training.state);
    CHECK(training.state.read(step_slot::kSkipped) == 0);
  }
}

TEST_CASE("an update has the same bits for any number of threads") {
  // Not a multiple of any register, and large enough for all threads.
  constexpr std::int64_t kCount = 300'004;
  const SgdRange sgd{0, kCount, {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};
  const SgdRange plain{0, kCount, {.weight_decay = 0.01}};
  const AdamRange adam{0, kCount, {.weight_decay = 0.01}};
  const auto update = [&](int threads) {
    const ThreadLimit limit(threads);
    Training training(0.1, 3);
    Backend& backend = backend_for(Device::cpu());
    std::vector<float> all;
    for (const int kind : {0, 1, 2}) {
      UpdateTensors tensors{.weights = tensor_of(random_array({kCount}, -1, 1, 1), DType::f32, Device::cpu()),
                            .gradients = tensor_of(random_array({kCount}, -9, 9, 2), DType::f32, Device::cpu()),
                            .tail = tensor_of(tail_of(8), DType::f32, Device::cpu()),
                            .first_state = tensor_of(random_array({kCount}, -1, 1, 3), DType::f32, Device::cpu()),
                            .second_state = tensor_of(random_array({kCount}, 0.1, 1, 4), DType::f32, Device::cpu()),
                            .averages = tensor_of(random_array({kCount}, -1, 1, 5), DType::f32, Device::cpu())};
      Tensor scalars = Tensor::zeros({step_scalar::kCount});
      backend.prepare_update(tensors.gradients, tensors.tail, 0.5, kMean, training.state, scalars);
      tensors.scalars = scalars;
      const UpdateParams params{.divide_by_weight_sum = true, .average_decay = 0.9};
      if (kind == 0) backend.sgd_update(tensors, {&sgd, 1}, params, training.state);
      if (kind == 1) backend.sgd_update(tensors, {&plain, 1}, params, training.state);
      if (kind == 2) backend.adam_update(tensors, {&adam, 1}, params, training.state);
      for (const Tensor& tensor :
           {tensors.weights, tensors.first_state, tensors.second_state, tensors.averages, scalars}) {
        const std::vector<float> values = tensor.to_vector<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  };
  const std::vector<float> wanted = update(1);
  for (const int threads : {2, 3, 5, 16}) {
    CAPTURE(threads);
    const bool same = update(threads) == wanted;
    CHECK(same);
  }
}
