// What the kernels of an update take: plain data that host code fills too (kernels/cuda/update.cpp, which checks that
// it agrees with engine/backend/op_params.h). No device code.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace heddle::cuda {

inline constexpr int kUpdateThreads = 256;
inline constexpr int kMaxRanges = 16;
inline constexpr int kMaxSources = 24;
// What ranges are cut into by gradients that are taken from elsewhere.
inline constexpr int kMaxPieces = kMaxRanges + 2 * kMaxSources;

// Indices of step_slot, tail_slot and step_scalar.
inline constexpr int kCounterStep = 0, kCounterBatch = 1, kCounterRandom = 2, kCounterHalted = 3, kCounterSkipped = 4,
                     kCounterSequence = 5, kCounterTicket = 6, kCounterFlag = 7, kCounterCount = 8;
inline constexpr int kTailWeightSum = 0, kTailLossSum = 1, kTailCorrect = 2, kTailSamples = 3, kTailNonFinite = 4,
                     kTailCount = 8;
inline constexpr int kScalarGradientScale = 0, kScalarGradientNorm = 1, kScalarSkip = 2, kScalarCount = 4;

// StatusRecord.
struct alignas(64) UpdateRecord {
  std::int64_t sequence;
  std::int64_t step;
  float loss_sum, weight_sum, correct, samples, learning_rate, gradient_norm;
  std::uint32_t non_finite;
};
inline constexpr int kUpdateRecords = 64;

struct UpdateBuffers {
  float* weights;               // (n), as all up to the tail
  float* gradients;             // written only where a piece has them from elsewhere
  float* first_state;           // null without momentum
  float* second_state;          // Adam's
  __nv_bfloat16* bf16_weights;  // or null
  const float* tail;            // (kTailCount)
  const float* scalars;         // (kScalarCount), or null: not prepared
  std::int64_t* counters;       // (kCounterCount)
  const float* learning_rates;  // (rate_count)
  std::int64_t rate_count;
  UpdateRecord* records;  // (kUpdateRecords), memory of the host
  float* averages;        // (n), or null
  double average_decay;
  bool divide_by_weight_sum, halt_on_non_finite, finish;
};

// No padding in these and in what holds arrays of them: g++ 12 clears more than that where there are arrays, which the
// simulated CUDA asks it to do.
struct SgdSettings {
  double learning_rate_scale, momentum, weight_decay;
  std::int64_t nesterov;  // 0 or 1
};
struct AdamSettings {
  double learning_rate_scale, beta1, beta2, eps, weight_decay;
  std::int64_t decoupled;  // 0 or 1
};

inline constexpr std::int64_t kZeroGradient = -1;

struct UpdatePiece {
  std::int64_t first_pack;     // of four elements, in the flat buffers
  std::int64_t end_index;      // packs of the pieces up to this one
  std::int64_t gradient_pack;  // where the gradient is: first_pack, or elsewhere, or kZeroGradient
  std::int64_t range;          // whose settings hold
};
template <class Settings>
struct UpdateRanges {
  UpdatePiece at[kMaxPieces];
  std::int64_t count;
  std::int64_t packs;  // of all pieces
  Settings settings[kMaxRanges];
  std::int64_t ranges;
};

// Gradients that are known without having been written.
struct KnownGradients {
  UpdatePiece at[kMaxSources];
  std::int64_t count;
  std::int64_t packs;
};

struct NormBuffers {
  const float* gradients;
  const float* tail;
  double* partials;  // one per block
  std::int64_t* counters;
  float* scalars;
  double max_norm;  // 0: no clipping
  bool divide_by_weight_sum;
};

}  // namespace heddle::cuda
