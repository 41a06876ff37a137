// Named parameters of the primitives in backend.h. Plain data, no checks: ops/shape_rules checks once for all backends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace heddle {

// How a primitive writes its output: store overwrites (the old content may be anything), add adds to it.
enum class WriteMode : std::uint8_t { store, add };

// y = f(x). Parameters a, b: pow_scalar x^a; add_scalar x+a; mul_scalar x*a; clamp to [a,b]; leaky has none.
enum class UnaryOp : std::uint8_t {
  copy,
  neg,
  abs,
  exp,
  log,
  sqrt,
  relu,
  sigmoid,
  tanh,
  gelu,
  pow_scalar,
  add_scalar,
  mul_scalar,
  clamp
};
// Element-wise with broadcasting. Comparisons write u8 0 or 1; the others keep the dtype of their operands.
enum class BinaryOp : std::uint8_t { add, sub, mul, div, pow, maximum, minimum, eq, ne, lt, le, gt, ge };
constexpr bool is_comparison(BinaryOp op) noexcept { return op >= BinaryOp::eq; }
enum class ReduceKind : std::uint8_t { sum, mean, max, min };
enum class PoolKind : std::uint8_t { max, avg };

struct Conv2dParams {
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t padding_h = 0, padding_w = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  friend bool operator==(const Conv2dParams&, const Conv2dParams&) = default;
};

struct Pool2dParams {
  std::int64_t kernel_h = 2, kernel_w = 2;
  std::int64_t stride_h = 2, stride_w = 2;
  std::int64_t padding_h = 0, padding_w = 0;
  bool ceil_mode = false;         // round the output size up; a window that starts in the right padding is dropped
  bool count_include_pad = true;  // average: the divisor counts padding (never what lies beyond input + padding)
  friend bool operator==(const Pool2dParams&, const Pool2dParams&) = default;
};

// Windows of 2x2 side by side; an odd last row or column is left out.
constexpr bool pools_2x2(const Pool2dParams& p) noexcept {
  return p.kernel_h == 2 && p.kernel_w == 2 && p.stride_h == 2 && p.stride_w == 2 && p.padding_h == 0 &&
         p.padding_w == 0 && !p.ceil_mode;
}

struct Pooling2d {
  PoolKind kind = PoolKind::max;
  Pool2dParams params;
  friend bool operator==(const Pooling2d&, const Pooling2d&) = default;
};

// A convolution, max(0, .) of it, and a pooling of that for which pools_2x2() holds.
struct Conv2dPoolParams {
  Conv2dParams conv;
  PoolKind pool = PoolKind::max;
};

struct MatmulParams {
  bool transpose_a = false;
  bool transpose_b = false;
};

struct CrossEntropyParams {
  double label_smoothing = 0.0;
  std::int64_t ignore_index = -100;
};

// Indices into the counters of a training (StepState::counters, i64), which live on the device and move on with each
// update, so that a recorded step finds new values at every replay.
namespace step_slot {
inline constexpr std::int64_t kStep = 0;      // updates done (skipped ones not counted)
inline constexpr std::int64_t kBatch = 1;     // batches of the epoch done: the index into the learning rates
inline constexpr std::int64_t kRandom = 2;    // the stream number of random ops (RandomStream::counter)
inline constexpr std::int64_t kHalted = 3;    // not 0: a step met NaN or infinity, and all later updates are no-ops
inline constexpr std::int64_t kSkipped = 4;   // not 0: the last update met NaN or infinity
inline constexpr std::int64_t kSequence = 5;  // calls so far that finished an update, skipped and halted ones too
inline constexpr std::int64_t kTicket = 6;    // the backend's own, 0 between kernels
inline constexpr std::int64_t kFlag = 7;      // the backend's own, 0 between updates
inline constexpr std::int64_t kCount = 8;
}  // namespace step_slot

// Indices into a loader's place in its order of images (i64 on the device; see Backend::gather_images).
namespace cursor_slot {
inline constexpr std::int64_t kPosition = 0;  // images of the epoch handed out: the first of the next batch
inline constexpr std::int64_t kEpoch = 1;     // decides the augmentation
inline constexpr std::int64_t kTicket = 2;    // the backend's own, 0 between kernels
inline constexpr std::int64_t kCount = 4;
}  // namespace cursor_slot

// Indices into what Backend::prepare_update writes (f32).
namespace step_scalar {
inline constexpr std::int64_t kGradientScale = 0;  // gradients are multiplied by it (1 / weight sum, times clipping)
inline constexpr std::int64_t kGradientNorm = 1;   // L2 norm of the gradient before clipping, divided like it
inline constexpr std::int64_t kSkip = 2;           // not 0: the gradient or the loss holds NaN or infinity
inline constexpr std::int64_t kCount = 4;
}  // namespace step_scalar

// Indices into the f32 tail of the gradient buffer, summed over ranks with the gradients.
namespace tail_slot {
inline constexpr std::int64_t kWeightSum = 0;  // sum of sample weights: the divisor of the gradient sums
inline constexpr std::int64_t kLossSum = 1;    // sum of weighted sample losses
inline constexpr std::int64_t kCorrect = 2;    // samples whose largest logit is the label
inline constexpr std::int64_t kSamples = 3;    // samples counted (not ignored)
inline constexpr std::int64_t kNonFinite = 4;  // > 0: some rank met a NaN or infinity
inline constexpr std::int64_t kCount = 8;
}  // namespace tail_slot

struct SgdParams {
  double momentum = 0.0;
  double weight_decay = 0.0;
  double learning_rate_scale = 1.0;
  bool nesterov = false;
};
struct AdamParams {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double learning_rate_scale = 1.0;
  bool decoupled = false;  // AdamW: the decay acts on the weight, not on the gradient
};

// Elements [begin, begin + numel) of the flat buffers with the same settings; both are multiples of 4.
template <class Params>
struct UpdateRange {
  std::int64_t begin = 0;
  std::int64_t numel = 0;
  Params params;
};
using SgdRange = UpdateRange<SgdParams>;
using AdamRange = UpdateRange<AdamParams>;
inline constexpr std::size_t kMaxUpdateRanges = 16;  // of one call

// A gradient that is known without having been written: elements [begin, begin + numel) of the flat gradients are those
// from `from` on, or zeros. All are multiples of 4. Ranges that are copied from are themselves in no GradientSource.
struct GradientSource {
  static constexpr std::int64_t kZeros = -1;
  std::int64_t begin = 0;
  std::int64_t numel = 0;
  std::int64_t from = kZeros;
};
inline constexpr std::size_t kMaxGradientSources = 24;  // of one call

struct UpdateParams {
  bool divide_by_weight_sum = false;  // gradients are divided by tail[kWeightSum] (by nothing if it is 0)
  bool halt_on_non_finite = false;    // a step that meets NaN or infinity raises kHalted
  bool finish = true;                 // the last call of an update: counters move on and the record is written
  double average_decay = 0.0;         // of UpdateTensors::averages, in [0, 1)
};

// What an update tells the host: one entry of a ring in memory that both see (StepState::records).
struct alignas(64) StatusRecord {
  std::int64_t sequence = 0;  // number of the call, from 1; written last, so that the rest is valid when it is seen
  std::int64_t step = 0;      // updates done, this one counted
  float loss_sum = 0.0f;      // of the tail, as the next five
  float weight_sum = 0.0f;
  float correct = 0.0f;
  float samples = 0.0f;
  float learning_rate = 0.0f;
  float gradient_norm = 0.0f;    // NaN unless prepare_update was called
  std::uint32_t non_finite = 0;  // not 0: this update met NaN or infinity, or is a no-op after one that did
};
inline constexpr std::int64_t kStatusRecords = 64;

// From resident uint8 images to a normalised batch: y = x * scale[c] + shift[c], after augmentation. Augmentation
// depends on seed, epoch (cursor_slot::kEpoch) and the image's index only: with the words r = philox_block(seed, index,
// epoch | 1 << 63) and s = 2 * random_crop + 1, pixel (h, w) of the result is pixel (h + (r[1] * s >> 32) -
// random_crop, w' + (r[2] * s >> 32) - random_crop) of the image, where w' = width - 1 - w if random_flip and r[0] is
// odd, else w.
struct GatherImagesParams {
  static constexpr int kMaxChannels = 4;
  std::array<float, kMaxChannels> scale{1.f / 255, 1.f / 255, 1.f / 255, 1.f / 255};
  std::array<float, kMaxChannels> shift{};
  bool random_flip = false;  // left-right, probability 1/2
  // Shift by up to this many pixels each way; outside the image pixels are 0 (before scale).
  std::int64_t random_crop = 0;
  std::uint64_t seed = 0;  // with the epoch and the image's index it decides the augmentation
  // For one rank's part of a batch of `total` images: those from number `first` on. total 0: the batch is whole.
  std::int64_t first = 0;
  std::int64_t total = 0;
};

// A stream of random numbers: Philox with this key, from this offset on (see core/random.h). With a counter, an address
// on the op's device, the stream number (the counter's upper half) is what it holds when the op runs: a recorded step
// draws new numbers at each replay, because its update moves step_slot::kRandom on. Without one it is 0.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  const std::int64_t* counter = nullptr;
};

}  // namespace heddle
