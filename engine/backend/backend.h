// The primitives that a device must offer: the only door between ops/ and the maths of a device. Implementations:
// engine/cpu (oneDNN and own kernels) and the CUDA plugin. Callers (ops/, optim/, data/) check shapes first, so that
// the rules are the same everywhere; implementations may assume what the comments state.
//
// All tensors are dense, row-major and on device(). Outputs are given by the caller and never alias inputs unless said.
// Work is queued on current_stream(device()). Images are (N,H,W,C), convolution weights (O,KH,KW,I/groups), linear
// weights (out,in). "float" means f32, f64 (CPU only) or bf16; all float operands of one call have the same dtype
// unless said. Throws: NotSupported (naming op, dtype, device) where a dtype is not offered; DeviceError; OutOfMemory
// for scratch.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "../tensor/tensor.h"
#include "batch_norm.h"
#include "op_params.h"
#include "step_state.h"

namespace heddle {

// What a cross-entropy call writes; what is undefined is not wanted. Sums have a fixed order.
struct CrossEntropyResult {
  Tensor row_loss;  // (N) f32, or f64 with f64 logits: weighted loss of each row, 0 for ignored ones
  Tensor loss;      // one element of row_loss's dtype: the sum of the row losses
  Tensor dlogits;   // (N,K) of the logits' dtype: gradient of the SUM of row losses
  // f32 (tail_slot::kCount): weight sum, loss sum, correct and sample counts; kNonFinite is raised when the loss sum is
  // not finite. store: all elements are overwritten (those of no use here with 0), so that nobody has to zero them
  // before; add: this call's sums are added. See ops::LossStats, which decides.
  Tensor stats;
  WriteMode stats_mode = WriteMode::add;
};

// The flat buffers of an update, all of n elements, n a multiple of 4, beginning at multiples of 16 bytes.
struct UpdateTensors {
  Tensor weights;    // f32
  Tensor gradients;  // f32, sums
  Tensor tail;       // f32 (tail_slot::kCount)
  // f32: SGD's velocity (undefined if no range has momentum; a first velocity of 0 gives PyTorch's first step) or
  // Adam's first moment; Adam's second moment.
  Tensor first_state, second_state;
  Tensor bf16_weights;  // undefined, or bf16: gets the updated weights of the ranges in the same pass
  Tensor scalars;       // undefined, or what prepare_update wrote for these gradients
  // Undefined, or f32: moving averages of the weights, which follow the updated weights of the ranges in the same pass:
  //   averages += (1 - d) (weights - averages),  d = min(average_decay, (1 + t) / (10 + t)),  t = kStep + 1.
  // The smaller decay of the first updates lets the average forget the weights that a training begins with.
  // Source: Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", SIAM J. Control Optim. 30,
  // 1992; the warm-up is num_updates of tf.train.ExponentialMovingAverage.
  Tensor averages;
  // Up to kMaxGradientSources, by ascending place, each inside one of the update's ranges or outside of all: the update
  // takes these gradients from there, and writes them to their places, also if it is skipped.
  std::span<const GradientSource> gradient_sources;
};

// Convolution, ReLU and 2x2 pooling in one pass each way, for backends that have one (Backend::fused_conv2d_pool): the
// convolution's own output, four times the result, is neither written nor kept. x (N,H,W,I), w (O,KH,KW,I), y
// (N,OH/2,OW/2,O), where OH and OW are the convolution's sizes.
class FusedConv2dPool {
 public:
  virtual ~FusedConv2dPool() = default;
  // y = pool(max(0, conv(x, w) (+ bias))), with the rules of conv2d_forward, max_pool2d_forward with relu and
  // avg_pool2d_forward. code: u8 of y's shape: bit 2 * row + column is set where that element of the window gets
  // gradient; or undefined if no gradient is wanted.
  virtual void forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dPoolParams& params, Tensor& y,
                       Tensor& code) = 0;
  // dy and code are of y's shape; the rest is as in Backend::conv2d_backward_data and conv2d_backward_weight.
  virtual void backward_data(const Tensor& dy, const Tensor& code, const Tensor& w, const Conv2dPoolParams& params,
                             const Tensor& relu_mask, Tensor& dx, WriteMode mode) = 0;
  virtual void backward_weight(const Tensor& x, const Tensor& dy, const Tensor& code, const Conv2dPoolParams& params,
                               Tensor& dw, Tensor* db, WriteMode mode) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const noexcept = 0;
  // Libraries and their versions, for reports: "oneDNN 2.6.3, avx512".
  virtual std::string description() const = 0;

  // ---- element-wise, data movement ------------------------------------------------------------------------------
  virtual void fill(Tensor& y, double value) = 0;
  // Converts between any two dtypes; same numel. Float to integer truncates towards zero.
  virtual void cast(const Tensor& x, Tensor& y) = 0;
  // y += alpha * x, same shape and float dtype.
  virtual void axpy(double alpha, const Tensor& x, Tensor& y) = 0;
  // y may be x.
  virtual void unary(UnaryOp op, const Tensor& x, double a, double b, Tensor& y) = 0;
  // dx (=|+=) dy * f'(x). x and y are the operand and the result; an op reads only the one it needs, the other may be
  // undefined: y for exp, sqrt, relu, sigmoid, tanh; x for abs, log, gelu, pow_scalar, clamp; none for the rest.
  virtual void unary_backward(UnaryOp op, const Tensor& x, const Tensor& y, const Tensor& dy, double a, double b,
                              Tensor& dx, WriteMode mode) = 0;
  // y has the broadcast shape of a and b (trailing dimensions aligned). Any dtype but pow and div: float. y may be a or
  // b of the same shape.
  virtual void binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) = 0;
  // y = condition ? a : b with broadcasting of all three; condition u8.
  virtual void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) = 0;
  // y[i_0..] = x with dimension i of y being dimension perm[i] of x.
  virtual void permute(const Tensor& x, std::span<const int> perm, Tensor& y) = 0;
  // Copies n entries of dimension dim: y[.., y_begin + j, ..] (=|+=) x[.., x_begin + j, ..]; the other dimensions are
  // equal.
  virtual void copy_range(const Tensor& x, std::int64_t x_begin, Tensor& y, std::int64_t y_begin, int dim,
                          std::int64_t n, WriteMode mode) = 0;
  // y.row(j) = x.row(index[j]); index i64 (n), already checked by the caller on the CPU; y (n, ...rest of x).
  virtual void index_select(const Tensor& x, const Tensor& index, Tensor& y) = 0;
  // y.row(index[j]) += x.row(j), repeated indices add up in the order of j (deterministic).
  virtual void index_add(const Tensor& x, const Tensor& index, Tensor& y) = 0;
  // y[i][j] = x[i][index[i][j]] along dim; index i64 has y's shape; the other dimensions of x equal y's.
  virtual void gather(const Tensor& x, int dim, const Tensor& index, Tensor& y) = 0;
  // The transpose of gather: y[i][index[i][j]] += x[i][j].
  virtual void scatter_add(const Tensor& x, int dim, const Tensor& index, Tensor& y) = 0;

  // ---- reductions, matrix products ------------------------------------------------------------------------------
  // Reduces the dimensions whose bit is set in dim_mask. y holds the kept dimensions (as 1 or left out: only numel
  // counts). Accumulates f32 and bf16 in f32 with a fixed order, or better.
  virtual void reduce(ReduceKind kind, const Tensor& x, std::uint32_t dim_mask, Tensor& y, WriteMode mode) = 0;
  // y i64: index of the first largest element along dim; a NaN counts as largest.
  virtual void argmax(const Tensor& x, int dim, Tensor& y) = 0;
  // y (=|+=) op(a) op(b): (M,K)x(K,N), or with an equal leading batch dimension.
  virtual void matmul(const Tensor& a, const Tensor& b, const MatmulParams& params, Tensor& y, WriteMode mode) = 0;

  // ---- layers -----------------------------------------------------------------------------------------------------
  // y = conv(x, w) (+ bias), then max(0, .) if relu. bias (O) or undefined.
  virtual void conv2d_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params,
                              bool relu, Tensor& y) = 0;
  // dx (=|+=) gradient for x. relu_mask: undefined, or of dx's shape: then the result of this call is multiplied by
  // (relu_mask > 0) before it is written (x was a ReLU output). Input that no window covers gets 0.
  virtual void conv2d_backward_data(const Tensor& dy, const Tensor& w, const Conv2dParams& params,
                                    const Tensor& relu_mask, Tensor& dx, WriteMode mode) = 0;
  // dw (=|+=) gradient for w; db likewise unless nullptr. The mode holds for both.
  virtual void conv2d_backward_weight(const Tensor& x, const Tensor& dy, const Conv2dParams& params, Tensor& dw,
                                      Tensor* db, WriteMode mode) = 0;
  // The fused form for operands like these, all three passes of it; null where the backend has none, or where it is
  // faster without. What it returns lives as long as the backend.
  virtual FusedConv2dPool* fused_conv2d_pool(const Tensor& x, const Tensor& w, const Conv2dPoolParams& params) = 0;
  // y (rows,out) = x (rows,in) w^T (+ bias), then max(0, .) if relu.
  virtual void linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, Tensor& y) = 0;
  // As the convolution's.
  virtual void linear_backward_data(const Tensor& dy, const Tensor& w, const Tensor& relu_mask, Tensor& dx,
                                    WriteMode mode) = 0;
  virtual void linear_backward_weight(const Tensor& x, const Tensor& dy, Tensor& dw, Tensor* db, WriteMode mode) = 0;
  // Max pooling; relu: of max(0, x). argmax: y's shape, u8 if kernel_h*kernel_w <= 255 else i32: row * kernel_w +
  // column of the window's first maximum, or undefined if no gradient is wanted. With relu, a window whose maximum is
  // <= 0 gives 0 and passes no gradient back, and its argmax is the backend's own matter. NaN wins.
  virtual void max_pool2d_forward(const Tensor& x, const Pool2dParams& params, bool relu, Tensor& y,
                                  Tensor& argmax) = 0;
  // y: the forward result if relu was set, else undefined.
  virtual void max_pool2d_backward(const Tensor& dy, const Tensor& y, const Tensor& argmax, const Pool2dParams& params,
                                   Tensor& dx, WriteMode mode) = 0;
  virtual void avg_pool2d_forward(const Tensor& x, const Pool2dParams& params, Tensor& y) = 0;
  // relu_mask as conv2d_backward_data.
  virtual void avg_pool2d_backward(const Tensor& dy, const Pool2dParams& params, const Tensor& relu_mask, Tensor& dx,
                                   WriteMode mode) = 0;
  // Window i of an axis is [floor(i*in/out), ceil((i+1)*in/out)). argmax i32: row * width + column inside the image
  // (max only).
  virtual void adaptive_pool2d_forward(PoolKind kind, const Tensor& x, Tensor& y, Tensor& argmax) = 0;
  virtual void adaptive_pool2d_backward(PoolKind kind, const Tensor& dy, const Tensor& argmax, Tensor& dx,
                                        WriteMode mode) = 0;
  // Batch norm; see batch_norm.h. A new tensor for the mask of a forward pass with relu whose gradient is wanted, in a
  // form of the backend's own; undefined where the backend takes y for it, which costs no memory.
  virtual Tensor batch_norm_mask(const BatchNormForward& operands) = 0;
  // The whole pass: one or two kernels on a GPU. Stable for means far from 0: sums of squares of x appear nowhere.
  virtual void batch_norm_forward(BatchNormForward& operands) = 0;
  // For several ranks, the part before the exchange: exchange (batch_norm_exchange_numel) of x, one kernel on a GPU.
  // Then batch_norm_forward with `exchanged` is one kernel too.
  virtual void batch_norm_statistics(const Tensor& x, Tensor& exchange) = 0;
  // All gradients that are wanted.
  virtual void batch_norm_backward(BatchNormBackward& operands) = 0;
  // For several ranks: before the exchange dscale, dshift and exchange, after it dx and daddend from the parts of all
  // ranks; one kernel each on a GPU. Only with batch_statistics.
  virtual void batch_norm_backward_sums(BatchNormBackward& operands, Tensor& exchange) = 0;
  virtual void batch_norm_backward_data(BatchNormBackward& operands, const Tensor& exchanged) = 0;
  // Over the last dimension. log: log-softmax.
  virtual void softmax_forward(const Tensor& x, bool log, Tensor& y) = 0;
  virtual void softmax_backward(const Tensor& y, const Tensor& dy, bool log, Tensor& dx, WriteMode mode) = 0;
  // logits (N,K), labels i64 (N) in [0,K) or ignore_index (checked on the CPU by the caller), class_weight (K) or
  // undefined. Writes what is defined of the result, all of it in one pass (one kernel on a GPU).
  virtual void cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& class_weight,
                             const CrossEntropyParams& params, CrossEntropyResult& result) = 0;
  // y = x * keep / (1 - p); element i is kept when uniform number i of the stream is >= p. The same call on dy is the
  // backward.
  virtual void dropout(const Tensor& x, double p, const RandomStream& random, Tensor& y, WriteMode mode) = 0;
  virtual void random_uniform(double low, double high, const RandomStream& random, Tensor& y) = 0;
  virtual void random_normal(double mean, double stddev, const RandomStream& random, Tensor& y) = 0;

  // ---- training step ----------------------------------------------------------------------------------------------
  // Writes up to kMaxGradientSources known gradients to their places in the flat gradients (f32), one kernel on a GPU.
  virtual void write_gradients(Tensor& gradients, std::span<const GradientSource> sources) = 0;
  // Before an update that clips or wants the norm, at most two kernels on a GPU. Of the summed gradients (flat f32) and
  // the tail: writes scalars (step_scalar::kCount) f32 with the gradient's scale (1 / weight sum, 0 for a weight sum of
  // 0; 1 without divide_by_weight_sum) times the clipping factor min(1, max_norm / (norm + 1e-6)) if max_norm > 0, the
  // norm, and kSkip = 1 when the tail's kNonFinite is raised or the gradient holds NaN or infinity. Reads nothing back.
  virtual void prepare_update(const Tensor& gradients, const Tensor& tail, double max_norm, const UpdateParams& params,
                              StepState& state, Tensor& scalars) = 0;
  // One update of up to kMaxUpdateRanges ranges, PyTorch's SGD (dampening 0) or Adam/AdamW, in one kernel on a GPU. The
  // learning rate is learning_rates[min(kBatch, last)] times the range's scale; Adam's t is kStep + 1. With finish it
  // ends with: kSequence and the record; kStep moves on unless the update was skipped; kBatch and kRandom move on
  // unless the training had been halted before. Tail, scalars and gradients, but for gradient_sources, stay as they
  // are.
  //
  // The update is skipped (nothing but counters and record changes) when kHalted is set, when the tail's kNonFinite is
  // raised, or when scalars say so. Without scalars a NaN or infinity in the gradient alone skips it as a whole on the
  // CPU; a GPU has then changed the weights of the finite elements, and counts the update as skipped and halts all the
  // same. No backend ever writes a weight that is not finite: such an element keeps its weight and state, and the
  // update counts as one that met infinity.
  virtual void sgd_update(UpdateTensors& tensors, std::span<const SgdRange> ranges, const UpdateParams& params,
                          StepState& state) = 0;
  virtual void adam_update(UpdateTensors& tensors, std::span<const AdamRange> ranges, const UpdateParams& params,
                           StepState& state) = 0;
  // The next batch, one kernel on a GPU. images u8 (M,H,W,C), labels u8 (M), order i32 (M), cursor i64
  // (cursor_slot::kCount); batch row j is image order[kPosition + first + j], where kPosition + first + n <= M is the
  // caller's promise. y (n,H,W,C) float, n may be 0; batch_labels i64 (n). Moves kPosition on by params.total (0: by n)
  // when all is read.
  virtual void gather_images(const Tensor& images, const Tensor& labels, const Tensor& order, Tensor& cursor,
                             const GatherImagesParams& params, Tensor& y, Tensor& batch_labels) = 0;
  // y[i] = hash_bits (core/bit_hash.h) of all bytes of tensors[i], which may have any dtypes; y i64 (number of
  // tensors). The same value on every backend. One kernel on a GPU for up to 128 tensors.
  virtual void hash(std::span<const Tensor> tensors, Tensor& y) = 0;
};

// The backend of a device; the CPU's exists always. Throws: InvalidArgument if none is registered.
Backend& backend_for(Device device);
using BackendFactory = std::function<std::unique_ptr<Backend>()>;
// Adds the backend of a registered device, which is made at its first use and stays until the program ends.
// Throws: InvalidArgument if the device has one already.
void register_backend(Device device, BackendFactory factory);

// Made by engine/cpu; declared here so that the registry need not include it.
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace heddle
