// Updates that take gradients from elsewhere than their places, against updates whose gradients are in their places.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/backend.h"
#include "tests/support/catch.h"
#include "tests/support/devices.h"

using namespace heddle;
using namespace heddle::testing;

namespace {

constexpr std::int64_t kCount = 4000;
constexpr UpdateParams kMean{.divide_by_weight_sum = true};

UpdateTensors flat_buffers(Device device) {
  std::vector<float> tail(tail_slot::kCount, 0.0f);
  tail[tail_slot::kWeightSum] = 4;
  return {.weights = Tensor::full({kCount}, 1, DType::f32, device),
          .gradients = {},
          .tail = Tensor::from_values<float>(tail, {tail_slot::kCount}).to(device),
          .first_state = Tensor::zeros({kCount}, DType::f32, device),
          .second_state = Tensor::zeros({kCount}, DType::f32, device)};
}

// A training with two updates behind it.
struct Training {
  explicit Training(Device device) : state(device) {
    const double rate = 0.25;
    state.set_learning_rates({&rate, 1});
    state.set(step_slot::kStep, 2);
  }
  StepState state;
};

}  // namespace

TEST_CASE("an update takes known gradients from elsewhere and leaves them in their places, also when it is skipped") {
  // Zeros, copies from before and behind, neighbours, at both ends of ranges and in none of them.
  const std::vector<GradientSource> sources{{.begin = 0, .numel = 8},
                                            {.begin = 8, .numel = 4, .from = 2000},
                                            {.begin = 1000, .numel = 40},
                                            {.begin = 1200, .numel = 400, .from = 40},
                                            {.begin = 2996, .numel = 4},
                                            {.begin = 3200, .numel = 16, .from = 3400},
                                            {.begin = 3996, .numel = 4, .from = 12}};
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  std::vector<float> wanted = values;
  for (const GradientSource& s : sources) {
    for (std::int64_t i = 0; i < s.numel; ++i) {
      wanted[static_cast<std::size_t>(s.begin + i)] =
          s.from == GradientSource::kZeros ? 0.0f : values[static_cast<std::size_t>(s.from + i)];
    }
  }
  const std::vector<SgdRange> ranges{{0, 3000, {.momentum = 0.9}}, {3600, 400, {.momentum = 0.9, .weight_decay = 0.1}}};
  // What lies in no range is not the update's business.
  std::vector<float> updated = wanted;
  std::copy(values.begin() + 3000, values.begin() + 3600, updated.begin() + 3000);
  for (const Device device : test_devices()) {
    const auto flat = [&](const std::vector<float>& g) {
      UpdateTensors tensors = flat_buffers(device);
      tensors.gradients = Tensor::from_values<float>(g, {kCount}).to(device);
      return tensors;
    };
    CAPTURE(device.to_string());
    Backend& backend = backend_for(device);
    UpdateTensors alone = flat(values);
    backend.write_gradients(alone.gradients, sources);
    CHECK(alone.gradients.to_vector<float>() == wanted);

    for (const bool halted : {false, true}) {
      UpdateTensors plain = flat(wanted), tensors = flat(values);
      tensors.gradient_sources = sources;
      for (UpdateTensors* const t : {&plain, &tensors}) {
        Training training(device);
        if (halted) training.state.set(step_slot::kHalted, 1);
        backend.sgd_update(*t, ranges, kMean, training.state);
      }
      CHECK(tensors.weights.to_vector<float>() == plain.weights.to_vector<float>());
      CHECK(tensors.first_state.to_vector<float>() == plain.first_state.to_vector<float>());
      const std::vector<float> left = tensors.gradients.to_vector<float>();
      // The CPU writes all of them first.
      CHECK(left == (device.is_cpu() ? wanted : updated));
    }
    const AdamRange all{0, kCount, {.weight_decay = 0.1}};
    UpdateTensors plain = flat(wanted), tensors = flat(values);
    tensors.gradient_sources = sources;
    for (UpdateTensors* const t : {&plain, &tensors}) {
      Training training(device);
      backend.adam_update(*t, {&all, 1}, kMean, training.state);
    }
    CHECK(tensors.weights.to_vector<float>() == plain.weights.to_vector<float>());
    CHECK(tensors.second_state.to_vector<float>() == plain.second_state.to_vector<float>());
    CHECK(tensors.gradients.to_vector<float>() == wanted);
  }
}
