// The end of a training step: the update of all weights, the counters that it moves on, and the record that tells the
// host; and before it, where wanted, the norm of the gradient.
#pragma once

#include <cfloat>

#include "kernels/device/types.cuh"
#include "kernels/device/update_types.cuh"

namespace heddle::cuda {

// What all elements of a range share, worked out once per block.
struct SgdValues {
  float learning_rate, momentum, weight_decay, gradient_scale;
  bool nesterov;
};
struct AdamValues {
  float beta1, beta2, rest1, rest2, eps, coupled_decay, kept, gradient_scale, step_size, inverse_sqrt_correction2;
};

__device__ inline SgdValues values_of(const SgdSettings& s, double rate, double scale, double) {
  return {static_cast<float>(rate * s.learning_rate_scale), static_cast<float>(s.momentum),
          static_cast<float>(s.weight_decay), static_cast<float>(scale), s.nesterov != 0};
}

// step: number of this update, from 1. The bias corrections need the precision of double.
__device__ inline AdamValues values_of(const AdamSettings& s, double rate, double scale, double step) {
  const double learning_rate = rate * s.learning_rate_scale;
  return {static_cast<float>(s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1 - s.beta1),
          static_cast<float>(1 - s.beta2),
          static_cast<float>(s.eps),
          s.decoupled != 0 ? 0.0f : static_cast<float>(s.weight_decay),
          s.decoupled != 0 ? static_cast<float>(1 - learning_rate * s.weight_decay) : 1.0f,
          static_cast<float>(scale),
          static_cast<float>(learning_rate / (1 - pow(s.beta1, step))),
          static_cast<float>(1 / sqrt(1 - pow(s.beta2, step)))};
}

__device__ inline bool is_finite(float value) { return fabsf(value) <= FLT_MAX; }

// Updates one weight and its state, unless it would not be finite: then nothing changes and the result is false.
// w -= lr (nesterov ? g + momentum v : v), v = momentum v + g, g = scale gradient + decay w.
__device__ inline bool update_element(const SgdValues& s, float gradient, float& w, float& velocity, float&) {
  float g = s.gradient_scale * gradient + s.weight_decay * w, next_velocity = velocity;
  if (s.momentum > 0) {
    next_velocity = s.momentum * velocity + g;
    g = s.nesterov ? g + s.momentum * next_velocity : next_velocity;
  }
  const float next = w - s.learning_rate * g;
  if (!is_finite(next)) return false;
  w = next;
  velocity = next_velocity;
  return true;
}

// m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2, w = kept w - step_size m / (sqrt(v) correction + eps).
__device__ inline bool update_element(const AdamValues& s, float gradient, float& w, float& m, float& v) {
  const float g = s.gradient_scale * gradient + s.coupled_decay * w;
  const float first = s.beta1 * m + s.rest1 * g, second = s.beta2 * v + s.rest2 * g * g;
  const float next = s.kept * w - s.step_size * (first / (sqrtf(second) * s.inverse_sqrt_correction2 + s.eps));
  // A second moment that overflowed would freeze its weight for good without being noticed.
  if (!is_finite(next) || !is_finite(second)) return false;
  w = next;
  m = first;
  v = second;
  return true;
}

__device__ inline bool has_state(const SgdValues& s) { return s.momentum > 0; }
__device__ inline bool has_state(const AdamValues&) { return true; }
template <class Values>
inline constexpr bool kHasSecondState = std::is_same_v<Values, AdamValues>;

// True in the last of the grid's blocks that comes here, in all its threads; the others have written what they write
// by then. The ticket is 0 before and after the kernel.
__device__ inline bool is_last_block(unsigned long long* ticket) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(ticket, 1ull) == gridDim.x - 1;
    __threadfence();
    if (last) *ticket = 0;
  }
  __syncthreads();
  return last;
}

// How far the averages follow the weights after update t, counted from 1: less than 1 - decay is left of what was
// there only once t is large.
__device__ inline float average_share(double decay, double t) {
  return static_cast<float>(1 - fmin(decay, (1 + t) / (10 + t)));
}

__device__ inline double mean_scale(const float* tail, bool divide) {
  if (!divide) return 1;
  const double weight_sum = static_cast<double>(tail[kTailWeightSum]);
  return weight_sum == 0 ? 0 : 1 / weight_sum;
}

// Ends an update: counters and record. One thread, when all blocks have read the counters.
__device__ inline void finish_update(const UpdateBuffers& b, float rate, bool skipped) {
  volatile std::int64_t* const counters = b.counters;
  const bool non_finite = skipped || counters[kCounterFlag] != 0, halted = counters[kCounterHalted] != 0;
  counters[kCounterFlag] = 0;
  if (!halted) {
    counters[kCounterSkipped] = non_finite ? 1 : 0;
    if (!non_finite) counters[kCounterStep] = counters[kCounterStep] + 1;
    counters[kCounterBatch] = counters[kCounterBatch] + 1;
    counters[kCounterRandom] = counters[kCounterRandom] + 1;
    if (non_finite && b.halt_on_non_finite) counters[kCounterHalted] = 1;
  }
  const std::int64_t sequence = counters[kCounterSequence] + 1;
  counters[kCounterSequence] = sequence;
  volatile UpdateRecord& record = b.records[sequence % kUpdateRecords];
  record.step = counters[kCounterStep];
  record.loss_sum = b.tail[kTailLossSum];
  record.weight_sum = b.tail[kTailWeightSum];
  record.correct = b.tail[kTailCorrect];
  record.samples = b.tail[kTailSamples];
  record.learning_rate = rate;
  record.gradient_norm = b.scalars == nullptr ? NAN : b.scalars[kScalarGradientNorm];
  record.non_finite = non_finite || halted ? 1 : 0;
  // The host reads the record as soon as it sees the number.
  __threadfence_system();
  record.sequence = sequence;
}

// The gradient of place `offset` of a piece, in packs; if it is known from elsewhere it is also written to its own
// place.
__device__ inline Pack<float, 4> gradient_of(float* gradients, std::int64_t first_pack, std::int64_t gradient_pack,
                                             std::int64_t offset) {
  Pack<float, 4> gradient = {};
  if (gradient_pack != kZeroGradient) gradient = load_pack<4>(gradients + 4 * (gradient_pack + offset));
  if (gradient_pack != first_pack) store_pack<4>(gradients + 4 * (first_pack + offset), gradient);
  return gradient;
}

// One update of all ranges. One thread: packs of four elements, a grid apart. Blocks of 256; a grid of any size that
// fills the GPU. Bytes an element: SGD reads 8 and writes 4, with momentum 12 and 8, Adam 16 and 12; the bf16 copy
// writes 2 more, averages read 4 and write 4 more. Deterministic. The last block to end moves the counters on; all
// others have read them by then.
template <class Settings>
__global__ void __launch_bounds__(kUpdateThreads)
    update_kernel(UpdateBuffers b, const __grid_constant__ UpdateRanges<Settings> ranges) {
  using Values = decltype(values_of(Settings{}, 0.0, 0.0, 0.0));
  __shared__ Values values[kMaxRanges];
  __shared__ std::int64_t first_pack[kMaxPieces], end_index[kMaxPieces], gradient_pack[kMaxPieces], range[kMaxPieces];
  __shared__ float rate, share;
  __shared__ bool skipped, idle;
  if (threadIdx.x == 0) {
    const std::int64_t batch = b.counters[kCounterBatch];
    rate = b.learning_rates[batch < b.rate_count - 1 ? batch : b.rate_count - 1];
    skipped = b.scalars == nullptr ? b.tail[kTailNonFinite] > 0 : b.scalars[kScalarSkip] != 0;
    idle = skipped || b.counters[kCounterHalted] != 0;
    share = average_share(b.average_decay, static_cast<double>(b.counters[kCounterStep] + 1));
  }
  __syncthreads();
  if (const int r = static_cast<int>(threadIdx.x); r < ranges.ranges) {
    const double scale = b.scalars == nullptr ? mean_scale(b.tail, b.divide_by_weight_sum)
                                              : static_cast<double>(b.scalars[kScalarGradientScale]);
    values[r] = values_of(ranges.settings[r], static_cast<double>(rate), scale,
                          static_cast<double>(b.counters[kCounterStep] + 1));
  }
  if (const int p = static_cast<int>(threadIdx.x); p < ranges.count) {
    first_pack[p] = ranges.at[p].first_pack;
    end_index[p] = ranges.at[p].end_index;
    gradient_pack[p] = ranges.at[p].gradient_pack;
    range[p] = ranges.at[p].range;
  }
  __syncthreads();

  bool refused = false;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kUpdateThreads;
  int p = 0;
  for (std::int64_t i = grid_thread(); i < ranges.packs; i += threads) {
    while (i >= end_index[p]) ++p;
    // A skipped update still leaves gradients that hold.
    if (idle && gradient_pack[p] == first_pack[p]) continue;
    const std::int64_t offset = i - (p == 0 ? 0 : end_index[p - 1]), at = 4 * (first_pack[p] + offset);
    const auto gradient = gradient_of(b.gradients, first_pack[p], gradient_pack[p], offset);
    if (idle) continue;
    const Values& v = values[range[p]];
    auto w = load_pack<4>(b.weights + at);
    Pack<float, 4> first = {}, second = {};
    if (has_state(v)) first = load_pack<4>(b.first_state + at);
    if constexpr (kHasSecondState<Values>) second = load_pack<4>(b.second_state + at);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (!update_element(v, gradient.at[k], w.at[k], first.at[k], second.at[k])) refused = true;
    }
    store_pack<4>(b.weights + at, w);
    if (has_state(v)) store_pack<4>(b.first_state + at, first);
    if constexpr (kHasSecondState<Values>) store_pack<4>(b.second_state + at, second);
    if (b.bf16_weights != nullptr) {
      Pack<bf16, 4> copy;
#pragma unroll
      for (int k = 0; k < 4; ++k) copy.at[k] = convert_to<bf16>(w.at[k]);
      store_pack<4>(b.bf16_weights + at, copy);
    }
    if (b.averages != nullptr) {
      auto average = load_pack<4>(b.averages + at);
#pragma unroll
      for (int k = 0; k < 4; ++k) average.at[k] += share * (w.at[k] - average.at[k]);
      store_pack<4>(b.averages + at, average);
    }
  }
  if (__syncthreads_or(refused ? 1 : 0) != 0 && threadIdx.x == 0) {
    atomicExch(reinterpret_cast<unsigned long long*>(b.counters + kCounterFlag), 1ull);
  }
  if (is_last_block(reinterpret_cast<unsigned long long*>(b.counters + kCounterTicket)) && threadIdx.x == 0) {
    if (skipped) b.counters[kCounterFlag] = 1;
    if (b.finish) finish_update(b, rate, skipped);
  }
}

// Writes gradients that are known from elsewhere to their own places. One thread: packs of four elements, a grid apart.
// Blocks of 256. Bytes an element: 4 written, 4 read unless it is zero. Deterministic.
__global__ void __launch_bounds__(kUpdateThreads)
    write_gradients_kernel(float* gradients, const __grid_constant__ KnownGradients known) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kUpdateThreads;
  int p = 0;
  for (std::int64_t i = grid_thread(); i < known.packs; i += threads) {
    while (i >= known.at[p].end_index) ++p;
    gradient_of(gradients, known.at[p].first_pack, known.at[p].gradient_pack,
                i - (p == 0 ? 0 : known.at[p - 1].end_index));
  }
}

// Sum over a block of kUpdateThreads, in the same order every time; valid in thread 0.
__device__ inline double block_sum(double value) {
  __shared__ double of_warps[kUpdateThreads / 32];
  for (unsigned delta = 16; delta > 0; delta /= 2) value += __shfl_down_sync(0xffffffffu, value, delta);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kUpdateThreads / 32; ++warp) value += of_warps[warp];
  }
  return value;
}

// The scalars of an update: squares of the gradient summed per block, then over the blocks by the last one. In double,
// in which squares of floats neither overflow nor vanish, so the sum is finite exactly if the gradient is. One thread:
// packs of four, a grid apart. Blocks of 256, at most kUpdateThreads of them. Bytes an element: 4 read. Deterministic:
// the order of all sums is fixed by the grid, which depends on the size alone.
__global__ void __launch_bounds__(kUpdateThreads) gradient_norm_kernel(NormBuffers b, std::int64_t packs) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kUpdateThreads;
  double sum = 0;
  for (std::int64_t i = grid_thread(); i < packs; i += threads) {
    const auto g = load_pack<4>(b.gradients + 4 * i);
#pragma unroll
    for (int k = 0; k < 4; ++k) sum += static_cast<double>(g.at[k]) * static_cast<double>(g.at[k]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) b.partials[blockIdx.x] = sum;
  if (!is_last_block(reinterpret_cast<unsigned long long*>(b.counters + kCounterTicket))) return;
  sum = block_sum(threadIdx.x < gridDim.x ? __ldcg(b.partials + threadIdx.x) : 0.0);
  if (threadIdx.x != 0) return;
  double scale = mean_scale(b.tail, b.divide_by_weight_sum);
  const double norm = sqrt(sum) * scale;
  if (b.max_norm > 0) scale *= fmin(1.0, b.max_norm / (norm + 1e-6));
  b.scalars[kScalarGradientScale] = static_cast<float>(scale);
  b.scalars[kScalarGradientNorm] = static_cast<float>(norm);
  b.scalars[kScalarSkip] = sum <= DBL_MAX && !(b.tail[kTailNonFinite] > 0) ? 0.0f : 1.0f;
}

}  // namespace heddle::cuda
