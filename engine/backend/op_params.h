// Named parameters of the primitives in backend.h. Plain data, no checks: ops/shape_rules checks once for all backends.
#pragma once

#include <array>
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
  bool ceil_mode = false;          // round the output size up; a window that starts in the right padding is dropped
  bool count_include_pad = false;  // average: the divisor counts padding (never what lies beyond input + padding)
  friend bool operator==(const Pool2dParams&, const Pool2dParams&) = default;
};

struct MatmulParams {
  bool transpose_a = false;
  bool transpose_b = false;
};

struct CrossEntropyParams {
  double label_smoothing = 0.0;
  std::int64_t ignore_index = -100;
};

// Indices into the small f32 tensor of per-step scalars that lives on the device (see Backend::sgd_update).
namespace step_scalar {
inline constexpr std::int64_t kLearningRate = 0;
inline constexpr std::int64_t kStep = 1;           // number of the update, from 1
inline constexpr std::int64_t kGradientScale = 2;  // gradients are multiplied by it (1 / weight sum, times clipping)
inline constexpr std::int64_t kSkip = 3;           // not 0: the update is a no-op
inline constexpr std::int64_t kGradientNorm = 4;   // L2 norm of the scaled gradient before clipping
inline constexpr std::int64_t kCount = 8;
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

// One range of the flat parameter buffer with the same settings.
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

// From resident uint8 images to a normalised batch: y = x * scale[c] + shift[c], after augmentation. Augmentation
// depends on seed, epoch and the image's index only: with the words r = philox_block(seed, index, epoch | 1 << 63) and
// s = 2 * random_crop + 1, pixel (h, w) of the result is pixel (h + (r[1] * s >> 32) - random_crop,
// w' + (r[2] * s >> 32) - random_crop) of the image, where w' = width - 1 - w if random_flip and r[0] is odd, else w.
struct GatherImagesParams {
  static constexpr int kMaxChannels = 4;
  std::array<float, kMaxChannels> scale{1.f / 255, 1.f / 255, 1.f / 255, 1.f / 255};
  std::array<float, kMaxChannels> shift{};
  bool random_flip = false;  // left-right, probability 1/2
  std::int64_t random_crop =
      0;                   // shift by up to this many pixels each way; outside the image pixels are 0 (before scale)
  std::uint64_t seed = 0;  // with epoch and the image's index it decides the augmentation
  std::uint64_t epoch = 0;
};

// A stream of random numbers: Philox with this key, from this offset on (see core/random.h).
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

}  // namespace heddle
