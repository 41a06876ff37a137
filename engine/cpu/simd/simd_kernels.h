// The hand-written CPU kernels: a table of functions on raw pointers, built for several instruction sets from the same
// sources and chosen once at run time. The CPU backend uses it; it knows nothing of tensors and starts no threads.
//
// Common rules. All arrays are dense fp32 unless said otherwise, images are (N,H,W,C), convolution weights
// (out_c,kernel_h,kernel_w,in_c), linear weights (out,in). Nothing is allocated and nothing is thrown: sizes are the
// caller's promise, and `scratch` has the size that the matching *_floats function returns, 64-byte aligned for speed.
// Inputs and outputs may not overlap unless a function says so. A range [begin, end) is one thread's share; different
// ranges of one call write different memory. Results depend on the ranges in weight gradients only, and are bitwise
// equal for equal ranges.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::cpu::simd {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// One image of a convolution with groups 1 and dilation 1. Windows may reach past the input on every side (that part
// reads as 0), so padding below and right follows from out_h and out_w.
struct ConvShape {
  std::int64_t in_h = 0, in_w = 0, in_c = 0;
  std::int64_t out_h = 0, out_w = 0, out_c = 0;
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;  // above and left
};

// A 2x2 pooling with stride 2 and no padding that the convolution does on the fly; an odd last row or column is
// dropped, and never computed. Equal to conv_forward, then max_pool_forward (relu fused) or avg_pool_forward.
enum class PoolAfter : std::uint8_t { kNone, kMax, kAverage };

// y = pool(relu(conv(x, w) + bias)); relu and pool only if asked for.
struct ConvForward {
  const float* x = nullptr;         // (N,in_h,in_w,in_c)
  const float* packed_w = nullptr;  // from conv_pack_forward
  const float* bias = nullptr;      // (out_c) or null
  bool relu = false;
  PoolAfter pool = PoolAfter::kNone;
  float* y = nullptr;                 // (N,out_h,out_w,out_c), or pooled: (N,out_h/2,out_w/2,out_c)
  std::uint8_t* pool_code = nullptr;  // if pooled: laid out like y; bit 2 * row + column of the window: gets gradient
  float* scratch = nullptr;           // conv_scratch_floats, one per thread
};

// dx = conv_transpose(dy, w), set to 0 where relu_mask is not above 0. Every element of dx in the range is written
// once: stored, or added to the old value if accumulate.
struct ConvBackwardData {
  const float* dy = nullptr;  // (N,out_h,out_w,out_c), or of the pooled output
  PoolAfter pool = PoolAfter::kNone;
  const std::uint8_t* pool_code = nullptr;  // if pooled: from conv_forward
  const float* packed_w = nullptr;          // from conv_pack_backward
  const float* relu_mask = nullptr;         // laid out like dx, or null: the output of the ReLU that made x
  bool accumulate = false;
  float* dx = nullptr;  // (N,in_h,in_w,in_c)
  float* scratch = nullptr;
};

// One thread's share of dw and db, stored into `partial` (conv_partial_floats). conv_reduce_partials makes dw and db.
struct ConvBackwardWeight {
  const float* x = nullptr;
  const float* dy = nullptr;  // as in ConvBackwardData
  PoolAfter pool = PoolAfter::kNone;
  const std::uint8_t* pool_code = nullptr;
  float* partial = nullptr;
  float* scratch = nullptr;
};

struct ConvReduce {
  const float* partials = nullptr;  // `count` partial buffers, one behind the other; added in this order
  std::int64_t count = 1;
  float* dw = nullptr;
  float* db = nullptr;      // or null
  bool accumulate = false;  // add to dw and db instead of storing
};

// One image of a pooling. Windows are clipped to the input; out_h and out_w are the caller's choice (ceil mode).
struct PoolShape {
  std::int64_t in_h = 0, in_w = 0;
  std::int64_t out_h = 0, out_w = 0;
  std::int64_t channels = 0;
  std::int64_t kernel_h = 1, kernel_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;  // on both sides
  bool count_include_pad = true;      // average only: padding counts as zeros
};

// argmax of a window without a winner: ReLU fused and no element above 0, or no element at all.
constexpr std::uint8_t kNoWinner = 255;

// y = max over the window; the first of equal elements wins, NaN over numbers (the last NaN, as in PyTorch). With relu:
// max(y, 0). kernel_h * kernel_w <= 255.
struct MaxPoolForward {
  const float* x = nullptr;  // (N,in_h,in_w,channels)
  bool relu = false;
  float* y = nullptr;              // (N,out_h,out_w,channels)
  std::uint8_t* argmax = nullptr;  // laid out like y: kh * kernel_w + kw of the winner, or kNoWinner; may be null
};

// Every element of dx in the range is written once: the sum of dy over the windows it won, stored or, if accumulate,
// added to the old value.
struct MaxPoolBackward {
  const float* dy = nullptr;
  const std::uint8_t* argmax = nullptr;
  const float* relu_mask = nullptr;  // laid out like dx, or null: this gradient is 0 where it is not above 0
  bool accumulate = false;
  float* dx = nullptr;
};

struct AvgPoolForward {
  const float* x = nullptr;
  float* y = nullptr;
};

struct AvgPoolBackward {
  const float* dy = nullptr;
  const float* relu_mask = nullptr;  // both as in MaxPoolBackward
  bool accumulate = false;
  float* dx = nullptr;
};

// A linear layer for `rows` samples: x (rows,in), w (out,in), y (rows,out).
struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// y = x w^T + bias, then max(y, 0) if relu. Range: rows.
struct LinearForward {
  const float* x = nullptr;
  const float* w = nullptr;
  const float* bias = nullptr;  // (out) or null
  bool relu = false;
  float* y = nullptr;
  float* scratch = nullptr;  // linear_scratch_floats, one per thread
};

// dx = dy w, set to 0 where relu_mask (laid out like dx, may be null) is not above 0, added to the old dx if
// accumulate. Range: rows.
struct LinearBackwardData {
  const float* dy = nullptr;
  const float* w = nullptr;
  const float* relu_mask = nullptr;
  bool accumulate = false;
  float* dx = nullptr;
  float* scratch = nullptr;
};

// dw = dy^T x over all rows, added to the old dw if accumulate. Range: columns of dw (input features).
struct LinearBackwardWeight {
  const float* x = nullptr;
  const float* dy = nullptr;
  float* dw = nullptr;
  bool accumulate = false;
  float* scratch = nullptr;
};

// A block of rows of batch norm's x (rows,channels). Channel vectors that the kernels read are repeated to
// batch_norm_period floats: element i of a block has value [i % period]. Masks of a ReLU have one bit an element, set
// where it was open, in a form that the functions of one table share: batch_norm_mask_nbytes for a block.
struct BatchNormBlock {
  std::int64_t channels = 0;
  std::int64_t rows = 0;
};
// Rounded up to full vectors of every table.
constexpr std::int64_t batch_norm_mask_nbytes(std::int64_t numel) { return (numel + 15) / 16 * 2; }

// y = (x - center) * factor + offset (+ addend), then max(y, 0) if relu.
struct BatchNormNormalise {
  const float* x = nullptr;
  const float* addend = nullptr;                                        // or null
  const float *center = nullptr, *factor = nullptr, *offset = nullptr;  // period
  bool relu = false;
  float* y = nullptr;
  std::uint8_t* mask = nullptr;  // or null; written
};

// Sums over the block of dz and of dz * (x - mean), where dz is dy, or 0 where the mask is not set.
struct BatchNormSums {
  const float* x = nullptr;
  const float* dy = nullptr;
  const std::uint8_t* mask = nullptr;             // or null
  const float* mean = nullptr;                    // period
  double *sum_dz = nullptr, *sum_dz_x = nullptr;  // channels
  float* scratch = nullptr;                       // batch_norm_scratch_floats
};

// daddend = dz;  dx = (dz - dz_mean - (x - mean) * slope) * factor, and 0 where x_relu_mask is not above 0. Stored, or
// added to what is there.
struct BatchNormData {
  const float* x = nullptr;
  const float* dy = nullptr;
  const std::uint8_t* mask = nullptr;                                                    // or null
  const float *mean = nullptr, *dz_mean = nullptr, *slope = nullptr, *factor = nullptr;  // period
  const float* x_relu_mask = nullptr;                                                    // or null
  float* dx = nullptr;                                                                   // or null
  float* daddend = nullptr;                                                              // or null
  bool add_dx = false, add_daddend = false;
};

// Softmax and cross-entropy of `rows` rows of `classes` logits. Per row, with p = softmax(logits), t = target,
// e = label_smoothing and class weights c (1 where null):
//   loss = (1 - e) * c[t] * -log p[t]  +  e / classes * sum over j of c[j] * -log p[j]
//   dlogits = gradient_scale * d loss / d logits
// Rows whose target is ignore_index have loss 0, gradient 0, and are not counted.
struct CrossEntropy {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  const float* logits = nullptr;          // (rows,classes)
  const std::int64_t* targets = nullptr;  // (rows)
  const float* class_weights = nullptr;   // (classes) or null
  float label_smoothing = 0.0f;
  std::int64_t ignore_index = -100;
  float gradient_scale = 1.0f;
  float* loss = nullptr;     // (rows) or null
  float* dlogits = nullptr;  // (rows,classes) or null; may be logits itself
  float* scratch = nullptr;  // cross_entropy_scratch_floats, one per thread
};

struct CrossEntropySums {
  double loss = 0.0;
  double weight = 0.0;          // sum of c[t] over the rows that count: what a mean divides by
  std::int64_t correct = 0;     // rows whose largest logit (the first of equal ones) is the target
  std::int64_t counted = 0;     // rows that are not ignored
  std::int64_t bad_target = 0;  // rows whose target is no class and not ignore_index; their loss is NaN
};

// One step of SGD as PyTorch defines it, on n values in one pass:
//   g = grad_scale * g + weight_decay * w;  m = momentum * m + g
//   w -= learning_rate * (nesterov ? g + momentum * m : m)
struct SgdStep {
  float* w = nullptr;
  const float* g = nullptr;
  float* momentum_buffer = nullptr;  // null: plain SGD
  float learning_rate = 0.0f;
  float momentum = 0.0f;
  float weight_decay = 0.0f;
  float grad_scale = 1.0f;
  bool nesterov = false;
};

// One step of Adam or AdamW as PyTorch defines it, on n values in one pass:
//   g = grad_scale * g (+ weight_decay * w unless decoupled);  w *= 1 - learning_rate * weight_decay if decoupled
//   m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g
//   w -= step_size * m / (sqrt(v) * inverse_sqrt_correction2 + eps)
struct AdamStep {
  float* w = nullptr;
  const float* g = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  float learning_rate = 0.0f;
  double beta1 = 0.9;  // double, so that 1 - beta is right to the last bit of a float
  double beta2 = 0.999;
  float eps = 1e-8f;
  float weight_decay = 0.0f;
  float grad_scale = 1.0f;
  float step_size = 0.0f;                 // learning_rate / (1 - beta1^step)
  float inverse_sqrt_correction2 = 1.0f;  // 1 / sqrt(1 - beta2^step)
  bool decoupled_weight_decay = false;    // AdamW
};

struct SimdKernels {
  const char* isa = nullptr;     // "avx512", "avx2" or "baseline"
  std::int64_t image_block = 1;  // convolution ranges run at full speed in multiples of this many images

  std::size_t (*conv_packed_floats)(const ConvShape&) = nullptr;  // either direction
  // Enough for all three passes: about image_block whole images. Made for small images and up to some 64 channels;
  // beyond a second-level cache (some 2^18 floats) other libraries are faster.
  std::size_t (*conv_scratch_floats)(const ConvShape&) = nullptr;
  std::size_t (*conv_partial_floats)(const ConvShape&) = nullptr;
  void (*conv_pack_forward)(const ConvShape&, const float* w, float* packed) = nullptr;
  void (*conv_pack_backward)(const ConvShape&, const float* w, float* packed) = nullptr;
  void (*conv_forward)(const ConvShape&, const ConvForward&, Range images) = nullptr;
  void (*conv_backward_data)(const ConvShape&, const ConvBackwardData&, Range images) = nullptr;
  void (*conv_backward_weight)(const ConvShape&, const ConvBackwardWeight&, Range images) = nullptr;
  void (*conv_reduce_partials)(const ConvShape&, const ConvReduce&) = nullptr;

  void (*max_pool_forward)(const PoolShape&, const MaxPoolForward&, Range images) = nullptr;
  void (*max_pool_backward)(const PoolShape&, const MaxPoolBackward&, Range images) = nullptr;
  void (*avg_pool_forward)(const PoolShape&, const AvgPoolForward&, Range images) = nullptr;
  void (*avg_pool_backward)(const PoolShape&, const AvgPoolBackward&, Range images) = nullptr;

  std::size_t (*linear_scratch_floats)(const LinearShape&) = nullptr;
  void (*linear_forward)(const LinearShape&, const LinearForward&, Range rows) = nullptr;
  void (*linear_backward_data)(const LinearShape&, const LinearBackwardData&, Range rows) = nullptr;
  void (*linear_backward_weight)(const LinearShape&, const LinearBackwardWeight&, Range in_features) = nullptr;
  // sums[column] = sum over rows of x (rows,columns), for a bias gradient. scratch: column_sums_floats(columns).
  std::size_t (*column_sums_floats)(std::int64_t columns) = nullptr;
  void (*column_sums)(const float* x, std::int64_t rows, std::int64_t columns, bool accumulate, float* sums,
                      float* scratch) = nullptr;

  std::int64_t (*batch_norm_period)(std::int64_t channels) = nullptr;  // a multiple of channels
  std::size_t (*batch_norm_scratch_floats)(std::int64_t channels) = nullptr;
  // Mean and sum of squared differences from it, of each channel; rows >= 1.
  void (*batch_norm_statistics)(const BatchNormBlock&, const float* x, double* mean, double* m2,
                                float* scratch) = nullptr;
  void (*batch_norm_normalise)(const BatchNormBlock&, const BatchNormNormalise&) = nullptr;
  void (*batch_norm_sums)(const BatchNormBlock&, const BatchNormSums&) = nullptr;
  void (*batch_norm_data)(const BatchNormBlock&, const BatchNormData&) = nullptr;

  std::size_t (*cross_entropy_scratch_floats)(std::int64_t classes) = nullptr;
  CrossEntropySums (*cross_entropy)(const CrossEntropy&, Range rows) = nullptr;

  // y = f(x) for n values, at most 2 units in the last place off (tanh, sigmoid: 4); y may be x.
  void (*exp)(const float* x, float* y, std::int64_t n) = nullptr;
  void (*log)(const float* x, float* y, std::int64_t n) = nullptr;
  void (*tanh)(const float* x, float* y, std::int64_t n) = nullptr;
  void (*sigmoid)(const float* x, float* y, std::int64_t n) = nullptr;

  // Arrays of n values; outputs may be one of the inputs.
  void (*relu_forward)(const float* x, float* y, std::int64_t n) = nullptr;                     // keeps NaN
  void (*relu_backward)(const float* dy, const float* y, float* dx, std::int64_t n) = nullptr;  // dx = y > 0 ? dy : 0
  void (*add)(const float* a, const float* b, float* y, std::int64_t n) = nullptr;
  void (*multiply)(const float* a, const float* b, float* y, std::int64_t n) = nullptr;
  void (*scale)(const float* x, float factor, float* y, std::int64_t n) = nullptr;
  void (*axpy)(float factor, const float* x, float* y, std::int64_t n) = nullptr;  // y += factor * x
  void (*fill)(float value, float* y, std::int64_t n) = nullptr;
  // y[i] = x[i] * scale[i % channels] + shift[i % channels]; n is a multiple of channels.
  void (*bytes_to_float)(const std::uint8_t* x, const float* scale, const float* shift, std::int64_t channels, float* y,
                         std::int64_t n) = nullptr;
  void (*to_bfloat16)(const float* x, std::uint16_t* y, std::int64_t n) = nullptr;  // nearest even; NaN stays NaN
  void (*from_bfloat16)(const std::uint16_t* x, float* y, std::int64_t n) = nullptr;
  double (*sum)(const float* x, std::int64_t n) = nullptr;  // both sums in double, in one fixed order
  double (*sum_of_squares)(const float* x, std::int64_t n) = nullptr;
  std::int64_t (*count_nonfinite)(const float* x, std::int64_t n) = nullptr;

  // Both return how many weights would not have been finite: those, and their state, stay as they are.
  std::int64_t (*sgd_step)(const SgdStep&, Range values) = nullptr;
  std::int64_t (*adam_step)(const AdamStep&, Range values) = nullptr;

  // Nothing but multiply-adds in registers, `rounds` times, for reports of what a core can do at most. Returns the
  // number of floating-point operations; *out gets a result that depends on all of them.
  std::int64_t (*multiply_add_chains)(std::int64_t rounds, float* out) = nullptr;
};

// The table for this machine: the best instruction set it has, or the one that the environment variable HEDDLE_SIMD
// names (avx512, avx2, baseline), chosen at the first call. Thread-safe.
// Throws: InvalidArgument if HEDDLE_SIMD names something else or something this machine or build does not have.
const SimdKernels& simd_kernels();

// The table of one instruction set, or null if this machine or build does not have it. For tests and benchmarks.
const SimdKernels* simd_kernels_for(const char* isa);

}  // namespace heddle::cpu::simd
