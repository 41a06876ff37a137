// The end of a training step: gradient norm and optimiser updates. Used through CudaBackend.
#include "kernels/launch/update.h"

#include <cstddef>
#include <utility>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/visit.h"

namespace heddle::cuda {
namespace {

// The kernels' types are those of the engine.
static_assert(kCounterStep == step_slot::kStep && kCounterBatch == step_slot::kBatch &&
              kCounterRandom == step_slot::kRandom && kCounterHalted == step_slot::kHalted &&
              kCounterSkipped == step_slot::kSkipped && kCounterSequence == step_slot::kSequence &&
              kCounterTicket == step_slot::kTicket && kCounterFlag == step_slot::kFlag &&
              kCounterCount == step_slot::kCount);
static_assert(kTailWeightSum == tail_slot::kWeightSum && kTailLossSum == tail_slot::kLossSum &&
              kTailCorrect == tail_slot::kCorrect && kTailSamples == tail_slot::kSamples &&
              kTailNonFinite == tail_slot::kNonFinite && kTailCount == tail_slot::kCount);
static_assert(kScalarGradientScale == step_scalar::kGradientScale &&
              kScalarGradientNorm == step_scalar::kGradientNorm && kScalarSkip == step_scalar::kSkip &&
              kScalarCount == step_scalar::kCount);
static_assert(sizeof(UpdateRecord) == sizeof(StatusRecord) &&
              offsetof(UpdateRecord, step) == offsetof(StatusRecord, step) &&
              offsetof(UpdateRecord, loss_sum) == offsetof(StatusRecord, loss_sum) &&
              offsetof(UpdateRecord, gradient_norm) == offsetof(StatusRecord, gradient_norm) &&
              offsetof(UpdateRecord, non_finite) == offsetof(StatusRecord, non_finite) &&
              kUpdateRecords == kStatusRecords);
static_assert(kMaxRanges == static_cast<int>(kMaxUpdateRanges) &&
              kMaxSources == static_cast<int>(kMaxGradientSources) && kZeroGradient == GradientSource::kZeros);

SgdSettings settings_of(const SgdParams& p) { return {p.learning_rate_scale, p.momentum, p.weight_decay, p.nesterov}; }
AdamSettings settings_of(const AdamParams& p) {
  return {p.learning_rate_scale, p.beta1, p.beta2, p.eps, p.weight_decay, p.decoupled};
}

void check_quads(const char* op, std::int64_t begin, std::int64_t numel) {
  HEDDLE_CHECK(begin % 4 == 0 && numel % 4 == 0, op, ": range [", begin, ", ", begin + numel,
               ") does not begin and end at multiples of 4");
}

void check_sources(const char* op, std::span<const GradientSource> sources) {
  HEDDLE_CHECK(sources.size() <= kMaxGradientSources, op, ": ", sources.size(), " known gradients, at most ",
               kMaxGradientSources, " are possible in one call");
  std::int64_t end = 0;
  for (const GradientSource& source : sources) {
    check_quads(op, source.begin, source.numel);
    HEDDLE_CHECK(source.begin >= end, op, ": known gradients are not in the order of their places");
    HEDDLE_CHECK(source.from == GradientSource::kZeros || (source.from >= 0 && source.from % 4 == 0), op,
                 ": a known gradient comes from element ", source.from);
    end = source.begin + source.numel;
  }
}

std::int64_t gradient_pack(const GradientSource& source) {
  return source.from == GradientSource::kZeros ? kZeroGradient : source.from / 4;
}

// Appends elements [begin, end) of a range, in one piece or cut where gradients are known from elsewhere.
template <class Settings>
void add_pieces(UpdateRanges<Settings>& list, std::int64_t begin, std::int64_t end,
                std::span<const GradientSource> sources) {
  const auto add = [&](std::int64_t first, std::int64_t last, std::int64_t gradient) {
    if (first == last) return;
    list.packs += (last - first) / 4;
    list.at[list.count++] = {first / 4, list.packs, gradient, list.ranges};
  };
  for (const GradientSource& source : sources) {
    if (source.begin < begin || source.begin >= end) continue;
    HEDDLE_CHECK(source.begin + source.numel <= end, "update: the known gradient [", source.begin, ", ",
                 source.begin + source.numel, ") is not inside of one range");
    add(begin, source.begin, begin / 4);
    add(source.begin, source.begin + source.numel, gradient_pack(source));
    begin = source.begin + source.numel;
  }
  add(begin, end, begin / 4);
}

template <class Range>
void run_update(const char* op, UpdateTensors& t, std::span<const Range> ranges, const UpdateParams& params,
                StepState& state, cudaStream_t stream) {
  visit_types<DType::f32>(op, t.weights.dtype(), [](auto) {});
  HEDDLE_CHECK(ranges.size() <= kMaxUpdateRanges, op, ": ", ranges.size(), " ranges, at most ", kMaxUpdateRanges,
               " are possible in one call");
  const UpdateBuffers buffers{.weights = data_of<float>(t.weights),
                              .gradients = t.gradient_sources.empty()
                                               ? const_cast<float*>(data_of<float>(std::as_const(t.gradients)))
                                               : data_of<float>(t.gradients),
                              .first_state = data_of<float>(t.first_state),
                              .second_state = data_of<float>(t.second_state),
                              .bf16_weights = data_of<__nv_bfloat16>(t.bf16_weights),
                              .tail = data_of<float>(static_cast<const Tensor&>(t.tail)),
                              .scalars = data_of<float>(static_cast<const Tensor&>(t.scalars)),
                              .counters = data_of<std::int64_t>(state.counters()),
                              .learning_rates = data_of<float>(static_cast<const Tensor&>(state.learning_rates())),
                              .rate_count = state.learning_rates().numel(),
                              .records = reinterpret_cast<UpdateRecord*>(state.device_records()),
                              .averages = data_of<float>(t.averages),
                              .average_decay = params.average_decay,
                              .divide_by_weight_sum = params.divide_by_weight_sum,
                              .halt_on_non_finite = params.halt_on_non_finite,
                              .finish = params.finish};
  UpdateRanges<decltype(settings_of(Range{}.params))> list{};
  check_sources(op, t.gradient_sources);
  for (const Range& range : ranges) {
    check_quads(op, range.begin, range.numel);
    add_pieces(list, range.begin, range.begin + range.numel, t.gradient_sources);
    list.settings[list.ranges++] = settings_of(range.params);
  }
  update(buffers, list, stream);
}

}  // namespace

void CudaBackend::write_gradients(Tensor& gradients, std::span<const GradientSource> sources) {
  visit_types<DType::f32>("write_gradients", gradients.dtype(), [](auto) {});
  check_sources("write_gradients", sources);
  if (sources.empty()) return;
  KnownGradients known{};
  for (const GradientSource& source : sources) {
    known.packs += source.numel / 4;
    known.at[known.count++] = {source.begin / 4, known.packs, gradient_pack(source), 0};
  }
  cuda::write_gradients(data_of<float>(gradients), known, stream());
}

void CudaBackend::prepare_update(const Tensor& gradients, const Tensor& tail, double max_norm,
                                 const UpdateParams& params, StepState& state, Tensor& scalars) {
  visit_types<DType::f32>("prepare_update", gradients.dtype(), [](auto) {});
  HEDDLE_CHECK(gradients.numel() % 4 == 0, "prepare_update: ", gradients.numel(),
               " elements of a flat gradient are no multiple of 4");
  Tensor partials = Tensor::empty({gradient_norm_blocks(gradients.numel())}, DType::f64, device_);
  gradient_norm({.gradients = data_of<float>(gradients),
                 .tail = data_of<float>(tail),
                 .partials = data_of<double>(partials),
                 .counters = data_of<std::int64_t>(state.counters()),
                 .scalars = data_of<float>(scalars),
                 .max_norm = max_norm,
                 .divide_by_weight_sum = params.divide_by_weight_sum},
                gradients.numel(), stream());
}

void CudaBackend::sgd_update(UpdateTensors& tensors, std::span<const SgdRange> ranges, const UpdateParams& params,
                             StepState& state) {
  run_update("sgd_update", tensors, ranges, params, state, stream());
}

void CudaBackend::adam_update(UpdateTensors& tensors, std::span<const AdamRange> ranges, const UpdateParams& params,
                              StepState& state) {
  run_update("adam_update", tensors, ranges, params, state, stream());
}

}  // namespace heddle::cuda
