// All differentiable ops. Each checks its arguments (shape_rules.h), allocates its result, calls one or a few
// primitives of the device's backend and records a Node when an input requires a gradient.
//
// Arguments. A Tensor is accepted wherever a Variable is: it is a constant. Scalars have overloads that take double.
// All operands of one op are on one device and have one dtype; nothing is converted silently, use to(). Element-wise
// ops broadcast as NumPy does (trailing dimensions aligned, 1 stretches), and the gradient of an operand has the
// operand's own shape. Negative dimensions count from the end. Results are fresh memory unless the function says view.
// Images are (N,H,W,C), convolution weights (O,KH,KW,I/groups), linear weights (out,in).
//
// Throws: InvalidArgument that names the op and both sides of what does not fit; NotSupported where a backend does not
// offer a dtype; OutOfMemory; DeviceError.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "../autograd/variable.h"
#include "../backend/op_params.h"
#include "loss_stats.h"

namespace heddle::ops {

// ---- element-wise with broadcasting ------------------------------------------------------------------------------
Variable add(const Variable& a, const Variable& b);
Variable add(const Variable& a, double b);
Variable sub(const Variable& a, const Variable& b);
Variable sub(const Variable& a, double b);
Variable sub(double a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable mul(const Variable& a, double b);
// Float dtypes only.
Variable div(const Variable& a, const Variable& b);
Variable div(const Variable& a, double b);
Variable div(double a, const Variable& b);
// a^b, float dtypes only. The gradient for b is 0 where a is 0, the one for a is 0 where b is 0.
Variable pow(const Variable& a, const Variable& b);
Variable pow(const Variable& a, double exponent);
// The gradient of a tie goes to a.
Variable maximum(const Variable& a, const Variable& b);
Variable maximum(const Variable& a, double b);
Variable minimum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, double b);

// Comparisons: u8, 0 or 1; no gradient.
Variable eq(const Variable& a, const Variable& b);
Variable ne(const Variable& a, const Variable& b);
Variable lt(const Variable& a, const Variable& b);
Variable le(const Variable& a, const Variable& b);
Variable gt(const Variable& a, const Variable& b);
Variable ge(const Variable& a, const Variable& b);
Variable eq(const Variable& a, double b);
Variable ne(const Variable& a, double b);
Variable lt(const Variable& a, double b);
Variable le(const Variable& a, double b);
Variable gt(const Variable& a, double b);
Variable ge(const Variable& a, double b);

// condition ? a : b; condition is u8 and broadcasts too.
Variable where(const Variable& condition, const Variable& a, const Variable& b);

// ---- element-wise, one operand (float dtypes) --------------------------------------------------------------------
Variable neg(const Variable& x);
Variable abs(const Variable& x);
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable sqrt(const Variable& x);
// x limited to [low, high]; the gradient is 0 outside. Throws: InvalidArgument if low > high or one is NaN.
Variable clamp(const Variable& x, double low, double high);
Variable relu(const Variable& x);
Variable sigmoid(const Variable& x);
Variable tanh(const Variable& x);
// x Phi(x) with the exact normal distribution function (no tanh approximation).
Variable gelu(const Variable& x);

// ---- reductions (float dtypes) -----------------------------------------------------------------------------------
// Over all elements: the result is a scalar, shape ().
Variable sum(const Variable& x);
Variable mean(const Variable& x);
// Over the given dimensions, which stay as 1 with keepdim and vanish without. An empty list reduces nothing.
Variable sum(const Variable& x, const std::vector<int>& dims, bool keepdim = false);
Variable mean(const Variable& x, const std::vector<int>& dims, bool keepdim = false);

struct MaxResult {
  Variable values;
  Tensor indices;  // i64, position along the reduced dimension; of equal values the first
};
// The gradient goes to the element at the index. A NaN counts as largest. Throws: InvalidArgument on an empty
// dimension.
MaxResult max(const Variable& x, int dim, bool keepdim = false);
Variable max(const Variable& x);
// i64; of equal values the first.
Tensor argmax(const Variable& x, int dim, bool keepdim = false);

// ---- matrix product ----------------------------------------------------------------------------------------------
// op(a) op(b), where op transposes the last two dimensions if asked: (M,K) x (K,N), or (..,M,K) x (..,K,N) with equal
// leading dimensions, or (..,M,K) x (K,N) without transpose_a.
Variable matmul(const Variable& a, const Variable& b, const MatmulParams& params = {});

// ---- shape -------------------------------------------------------------------------------------------------------
// A view of the same elements; one dimension may be -1.
Variable reshape(const Variable& x, std::initializer_list<std::int64_t> dims);
Variable reshape(const Variable& x, const Shape& shape);
// Dimensions [begin_dim, end_dim] become one. A view.
Variable flatten(const Variable& x, int begin_dim = 1, int end_dim = -1);
// Dimension i of the result is dimension perm[i] of x.
Variable permute(const Variable& x, const std::vector<int>& perm);
Variable transpose(const Variable& x, int dim0, int dim1);
// One after the other along dim; the other dimensions are equal.
Variable concat(const std::vector<Variable>& inputs, int dim = 0);
// Entries [begin, begin + n) of dim; a view if dim is the first dimension.
Variable narrow(const Variable& x, int dim, std::int64_t begin, std::int64_t n);

// ---- indexing ----------------------------------------------------------------------------------------------------
// Entries index[j] of dim, in the order of index: i64, one dimension, values in [0, x.dim(dim)) (checked for CPU
// tensors). Repeated indices add their gradients.
Variable index_select(const Variable& x, const Tensor& index, int dim = 0);
// y[i][j] = x[i][index[i][j]] along dim (here 1): index i64, x's shape but for dim, values in [0, x.dim(dim)) (checked
// for CPU tensors).
Variable gather(const Variable& x, int dim, const Tensor& index);
// labels i64 (..) in [0, num_classes) -> (.., num_classes) with 1 at the label, else 0.
Tensor one_hot(const Tensor& labels, std::int64_t num_classes, DType dtype = DType::f32);

// ---- conversion --------------------------------------------------------------------------------------------------
// Differentiable between float dtypes. x itself if it has the dtype already.
Variable to(const Variable& x, DType dtype);
// x itself if it is there already, else a copy. Blocks until the copy is done.
Variable to(const Variable& x, Device device);

// ---- random numbers ----------------------------------------------------------------------------------------------
struct RandomOptions {
  RandomStream random;  // the same stream gives the same numbers on every device and thread count
  DType dtype = DType::f32;
  Device device;
};
// Uniform in [0,1).
Tensor rand(const Shape& shape, const RandomOptions& options = {});
// Normal with mean 0 and deviation 1.
Tensor randn(const Shape& shape, const RandomOptions& options = {});
// x * keep / (1 - p); an element is dropped with probability p in [0,1). p = 0 is x itself.
Variable dropout(const Variable& x, double p, const RandomStream& random);

// ---- softmax and losses ------------------------------------------------------------------------------------------
Variable softmax(const Variable& x, int dim = -1);
Variable log_softmax(const Variable& x, int dim = -1);

enum class Reduction : std::uint8_t { mean, sum, none };

struct CrossEntropyOptions {
  double label_smoothing = 0.0;  // e in [0,1): (1-e) nll + e/K sum_k(-log p_k)
  Tensor class_weight;           // (K) of the logits' dtype, or undefined; each term is weighted by its class
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;  // mean: divided by the sum of the labels' weights (0/0 = NaN if all ignored)
  // None, or where weight sum, loss sum, correct and sample counts go in the same pass, for example
  // ParameterBuffer::tail(). A plain f32 tensor (tail_slot::kCount) serves too: they are added to what it holds.
  LossStats stats;
};
// logits (..,K) float, labels i64 (..) in [0,K) or ignore_index (checked for CPU tensors). The gradient is computed in
// the forward pass; with reduction sum and backward() started right here it costs nothing more. The loss is f32, or f64
// with f64 logits; with reduction none it has the labels' shape.
Variable cross_entropy(const Variable& logits, const Tensor& labels, const CrossEntropyOptions& options = {});
// (x - target)^2; equal shapes.
Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean);

// ---- layers ------------------------------------------------------------------------------------------------------
// x (N,H,W,I), w (O,KH,KW,I/groups), bias (O) or undefined -> (N,OH,OW,O),
// OH = (H + 2 padding - dilation (KH-1) - 1) / stride + 1, rounded down.
Variable conv2d(const Variable& x, const Variable& w, const Variable& bias = {}, const Conv2dParams& params = {});
// The same with max(0, .) in one pass.
Variable conv2d_relu(const Variable& x, const Variable& w, const Variable& bias = {}, const Conv2dParams& params = {});
// pool(max(0, conv2d(x, w, bias))). For windows of 2x2 side by side (pools_2x2) in one pass where the backend has one,
// which then keeps nothing of the convolution's own size; else conv2d and relu_max_pool2d, or conv2d_relu and
// avg_pool2d, whose values and gradients it has but for rounding.
Variable conv2d_relu_pool2d(const Variable& x, const Variable& w, const Variable& bias, const Conv2dParams& params,
                            const Pooling2d& pooling = {});
// x (..,in), w (out,in), bias (out) or undefined -> x w^T + bias (..,out).
Variable linear(const Variable& x, const Variable& w, const Variable& bias = {});
Variable linear_relu(const Variable& x, const Variable& w, const Variable& bias = {});

// How the ranks of a synchronised batch norm meet, once in the forward and once in the backward pass.
enum class BatchNormPass : std::uint8_t { forward, backward };
struct BatchNormExchange {
  int ranks = 0;  // 0: not synchronised
  // all (ranks, numel of own) becomes the ranks' own tensors in the order of the ranks, the same on each of them. What
  // is in them: see batch_norm_exchange_numel.
  std::function<void(BatchNormPass pass, const Tensor& own, Tensor& all)> gather;
};
struct BatchNormOptions {
  // true: mean and variance of the batch normalise, and their gradients are part of x's; false: the running ones do.
  bool training = true;
  // (C) of scale's dtype. In training they are updated in place: (1 - momentum) old + momentum new, the new variance
  // divided by rows - 1. Both undefined: none are kept (training only).
  Tensor running_mean, running_var;
  double momentum = 0.1;
  double eps = 1e-5;
  BatchNormExchange exchange = {};  // training: the batch is that of all ranks; a rank may have no rows
};
// x (..,C), scale and shift (C): f32, f64 where x is f64, also where x is bf16.
//   (x - mean) / sqrt(var + eps) * scale + shift, mean and variance (divided by rows) over all but the last dimension.
// Throws: InvalidArgument also for a batch of one row in training, which has no variance; then nothing was changed.
Variable batch_norm(const Variable& x, const Variable& scale, const Variable& shift, const BatchNormOptions& options);
// The same with max(0, .), and with addend (x's shape and dtype) before it, in one pass.
Variable batch_norm_relu(const Variable& x, const Variable& scale, const Variable& shift,
                         const BatchNormOptions& options);
Variable batch_norm_add_relu(const Variable& x, const Variable& addend, const Variable& scale, const Variable& shift,
                             const BatchNormOptions& options);

// x (N,H,W,C). The gradient goes to the first largest element of a window (or the first NaN).
Variable max_pool2d(const Variable& x, const Pool2dParams& params = {});
// max_pool2d(relu(x)) in one pass.
Variable relu_max_pool2d(const Variable& x, const Pool2dParams& params = {});
Variable avg_pool2d(const Variable& x, const Pool2dParams& params = {});
// Window i of an axis is [floor(i in/out), ceil((i+1) in/out)).
Variable adaptive_avg_pool2d(const Variable& x, std::int64_t out_h, std::int64_t out_w);
Variable adaptive_max_pool2d(const Variable& x, std::int64_t out_h, std::int64_t out_w);

}  // namespace heddle::ops

namespace heddle {

// Arithmetic reads as usual for variables, tensors (constants) and scalars in any mix with at least one of the first
// two; the result is always a Variable.
inline Variable operator+(const Variable& a, const Variable& b) { return ops::add(a, b); }
inline Variable operator+(const Variable& a, double b) { return ops::add(a, b); }
inline Variable operator+(double a, const Variable& b) { return ops::add(b, a); }
inline Variable operator-(const Variable& a, const Variable& b) { return ops::sub(a, b); }
inline Variable operator-(const Variable& a, double b) { return ops::sub(a, b); }
inline Variable operator-(double a, const Variable& b) { return ops::sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return ops::mul(a, b); }
inline Variable operator*(const Variable& a, double b) { return ops::mul(a, b); }
inline Variable operator*(double a, const Variable& b) { return ops::mul(b, a); }
inline Variable operator/(const Variable& a, const Variable& b) { return ops::div(a, b); }
inline Variable operator/(const Variable& a, double b) { return ops::div(a, b); }
inline Variable operator/(double a, const Variable& b) { return ops::div(a, b); }
inline Variable operator-(const Variable& x) { return ops::neg(x); }

}  // namespace heddle
