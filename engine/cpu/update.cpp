// The end of a training step: gradient checks and optimiser updates in one pass over the flat buffers. Used through
// CpuBackend. The loops themselves are in the SIMD table; f32 only, as the flat buffers are.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "engine/core/parallel.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/simd/simd_kernels.h"
#include "engine/cpu/visit.h"

namespace heddle::cpu {
namespace {

// Elements that are updated together: an update is cut among threads at whole registers of every instruction set, so
// that an element is always computed by the same instructions, and its bits do not depend on the number of threads.
constexpr std::int64_t kUnit = 64;

// Elements that are updated, copied and averaged before the next ones are read, so that all of it is one pass over
// memory: they and their state fit into a second-level cache.
constexpr std::int64_t kPassBlock = 4096;

// Elements whose squares are summed together: the cut is fixed, so the sum does not depend on threads.
constexpr std::int64_t kBlock = 65536;

// Sum of squares in double; infinite or NaN exactly if an element is, since squares of f32 do not overflow double.
double sum_of_squares(const float* x, std::int64_t n) {
  const simd::SimdKernels& kernels = simd::simd_kernels();
  const std::int64_t blocks = (n + kBlock - 1) / kBlock;
  if (blocks <= 1) return n == 0 ? 0.0 : kernels.sum_of_squares(x, n);
  Tensor scratch = Tensor::empty({blocks}, DType::f64);
  double* const sums = data_of<double>(scratch);
  parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      sums[b] = kernels.sum_of_squares(x + b * kBlock, std::min(kBlock, n - b * kBlock));
    }
  });
  double total = 0;
  for (std::int64_t b = 0; b < blocks; ++b) total += sums[b];
  return total;
}

double mean_scale(const float* tail, const UpdateParams& params) {
  if (!params.divide_by_weight_sum) return 1;
  const double weight_sum = static_cast<double>(tail[tail_slot::kWeightSum]);
  return weight_sum == 0 ? 0 : 1 / weight_sum;
}

// How far the averages follow the weights, see UpdateTensors::averages.
float average_share(double decay, double t) { return static_cast<float>(1 - std::min(decay, (1 + t) / (10 + t))); }

// What an update works with, once for all ranges.
struct UpdateValues {
  double learning_rate = 0, gradient_scale = 0, step = 1;
  bool skip = false;
};

UpdateValues read_values(const UpdateTensors& tensors, const UpdateParams& params, StepState& state) {
  const auto* const counters = data_of<std::int64_t>(static_cast<const Tensor&>(state.counters()));
  const Tensor& rates = state.learning_rates();
  const float* const tail = data_of<float>(tensors.tail);
  const std::int64_t batch = std::min(counters[step_slot::kBatch], rates.numel() - 1);
  UpdateValues values{.learning_rate = static_cast<double>(data_of<float>(rates)[batch]),
                      .step = static_cast<double>(counters[step_slot::kStep] + 1)};
  if (tensors.scalars.defined()) {
    const float* const scalars = data_of<float>(tensors.scalars);
    values.gradient_scale = static_cast<double>(scalars[step_scalar::kGradientScale]);
    values.skip = scalars[step_scalar::kSkip] != 0;
  } else {
    values.gradient_scale = mean_scale(tail, params);
    values.skip =
        tail[tail_slot::kNonFinite] > 0 ||
        simd::simd_kernels().count_nonfinite(data_of<float>(tensors.gradients), tensors.gradients.numel()) > 0;
  }
  return values;
}

void write_record(const UpdateTensors& tensors, const UpdateValues& values, bool non_finite, StepState& state) {
  auto* const counters = data_of<std::int64_t>(state.counters());
  const float* const tail = data_of<float>(tensors.tail);
  const std::int64_t sequence = ++counters[step_slot::kSequence];
  StatusRecord& record = state.device_records()[sequence % kStatusRecords];
  record.step = counters[step_slot::kStep];
  record.loss_sum = tail[tail_slot::kLossSum];
  record.weight_sum = tail[tail_slot::kWeightSum];
  record.correct = tail[tail_slot::kCorrect];
  record.samples = tail[tail_slot::kSamples];
  record.learning_rate = static_cast<float>(values.learning_rate);
  record.gradient_norm = tensors.scalars.defined() ? data_of<float>(tensors.scalars)[step_scalar::kGradientNorm]
                                                   : std::numeric_limits<float>::quiet_NaN();
  record.non_finite = non_finite ? 1 : 0;
  std::atomic_ref<std::int64_t>(record.sequence).store(sequence, std::memory_order_release);
}

// One update: apply(range, values, {begin, end}) updates elements of the flat buffers and returns how many weights it
// refused to write.
template <class Range, class Apply>
void run_update(const char* op, UpdateTensors& tensors, std::span<const Range> ranges, const UpdateParams& params,
                StepState& state, Apply apply) {
  visit_types<float>(op, tensors.weights.dtype(), [](auto) {});
  HEDDLE_CHECK(ranges.size() <= kMaxUpdateRanges, op, ": ", ranges.size(), " ranges, at most ", kMaxUpdateRanges,
               " are possible in one call");
  auto* const counters = data_of<std::int64_t>(state.counters());
  const bool halted = counters[step_slot::kHalted] != 0;
  const UpdateValues values = read_values(tensors, params, state);
  std::atomic<std::int64_t> refused{0};
  if (!halted && !values.skip) {
    const simd::SimdKernels& kernels = simd::simd_kernels();
    const float* const weights = data_of<float>(tensors.weights);
    float* const averages = data_of<float>(tensors.averages);
    const float share = average_share(params.average_decay, values.step);
    auto* const copies = tensors.bf16_weights.defined() ? data_of<std::uint16_t>(tensors.bf16_weights) : nullptr;
    for (const Range& range : ranges) {
      parallel_for((range.numel + kUnit - 1) / kUnit, kGrain / kUnit, [&](std::int64_t first, std::int64_t last) {
        const std::int64_t last_end = range.begin + std::min(last * kUnit, range.numel);
        for (std::int64_t begin = range.begin + first * kUnit; begin < last_end; begin += kPassBlock) {
          const std::int64_t end = std::min(begin + kPassBlock, last_end);
          if (const std::int64_t count = apply(range, values, simd::Range{begin, end}); count > 0) refused += count;
          if (copies != nullptr) kernels.to_bfloat16(weights + begin, copies + begin, end - begin);
          if (averages != nullptr) kernels.move_towards(weights + begin, share, averages + begin, end - begin);
        }
      });
    }
  }
  if (values.skip || refused > 0) counters[step_slot::kFlag] = 1;
  if (!params.finish) return;
  const bool non_finite = counters[step_slot::kFlag] != 0;
  counters[step_slot::kFlag] = 0;
  if (!halted) {
    counters[step_slot::kSkipped] = non_finite ? 1 : 0;
    if (!non_finite) ++counters[step_slot::kStep];
    ++counters[step_slot::kBatch];
    ++counters[step_slot::kRandom];
    if (non_finite && params.halt_on_non_finite) counters[step_slot::kHalted] = 1;
  }
  write_record(tensors, values, non_finite || halted, state);
}

}  // namespace

void CpuBackend::write_gradients(Tensor& gradients, std::span<const GradientSource> sources) {
  visit_types<float>("write_gradients", gradients.dtype(), [](auto) {});
  if (sources.empty()) return;
  float* const g = data_of<float>(gradients);
  for (const GradientSource& source : sources) {
    if (source.from == GradientSource::kZeros) {
      std::fill_n(g + source.begin, source.numel, 0.0f);
    } else {
      std::copy_n(g + source.from, source.numel, g + source.begin);
    }
  }
}

void CpuBackend::prepare_update(const Tensor& gradients, const Tensor& tail, double max_norm,
                                const UpdateParams& params, StepState&, Tensor& scalars) {
  visit_types<float>("prepare_update", gradients.dtype(), [](auto) {});
  const float* const t = data_of<float>(tail);
  double scale = mean_scale(t, params);
  const double squares = sum_of_squares(data_of<float>(gradients), gradients.numel());
  const double norm = std::sqrt(squares) * scale;
  if (max_norm > 0) scale *= std::fmin(1.0, max_norm / (norm + 1e-6));
  float* const s = data_of<float>(scalars);
  s[step_scalar::kGradientScale] = static_cast<float>(scale);
  s[step_scalar::kGradientNorm] = static_cast<float>(norm);
  s[step_scalar::kSkip] = std::isfinite(squares) && !(t[tail_slot::kNonFinite] > 0) ? 0.0f : 1.0f;
}

void CpuBackend::sgd_update(UpdateTensors& tensors, std::span<const SgdRange> ranges, const UpdateParams& params,
                            StepState& state) {
  write_gradients(tensors.gradients, tensors.gradient_sources);
  float* const w = data_of<float>(tensors.weights);
  const float* const g = data_of<float>(static_cast<const Tensor&>(tensors.gradients));
  float* const velocity = data_of<float>(tensors.first_state);
  run_update("sgd_update", tensors, ranges, params, state,
             [=](const SgdRange& range, const UpdateValues& values, simd::Range elements) {
               const SgdParams& p = range.params;
               const simd::SgdStep step{
                   .w = w,
                   .g = g,
                   .momentum_buffer = p.momentum > 0 ? velocity : nullptr,
                   .learning_rate = static_cast<float>(values.learning_rate * p.learning_rate_scale),
                   .momentum = static_cast<float>(p.momentum),
                   .weight_decay = static_cast<float>(p.weight_decay),
                   .grad_scale = static_cast<float>(values.gradient_scale),
                   .nesterov = p.nesterov};
               return simd::simd_kernels().sgd_step(step, elements);
             });
}

void CpuBackend::adam_update(UpdateTensors& tensors, std::span<const AdamRange> ranges, const UpdateParams& params,
                             StepState& state) {
  write_gradients(tensors.gradients, tensors.gradient_sources);
  float* const w = data_of<float>(tensors.weights);
  const float* const g = data_of<float>(static_cast<const Tensor&>(tensors.gradients));
  float* const m = data_of<float>(tensors.first_state);
  float* const v = data_of<float>(tensors.second_state);
  run_update("adam_update", tensors, ranges, params, state,
             [=](const AdamRange& range, const UpdateValues& values, simd::Range elements) {
               const AdamParams& p = range.params;
               const double learning_rate = values.learning_rate * p.learning_rate_scale;
               const simd::AdamStep step{
                   .w = w,
                   .g = g,
                   .m = m,
                   .v = v,
                   .learning_rate = static_cast<float>(learning_rate),
                   .beta1 = p.beta1,
                   .beta2 = p.beta2,
                   .eps = static_cast<float>(p.eps),
                   .weight_decay = static_cast<float>(p.weight_decay),
                   .grad_scale = static_cast<float>(values.gradient_scale),
                   .step_size = static_cast<float>(learning_rate / (1 - std::pow(p.beta1, values.step))),
                   .inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(p.beta2, values.step))),
                   .decoupled_weight_decay = p.decoupled};
               return simd::simd_kernels().adam_step(step, elements);
             });
}

}  // namespace heddle::cpu
