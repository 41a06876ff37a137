// Plain loops in double for every primitive of engine/backend/backend.h, written from the definitions and sharing no
// code with any backend. They return what a call in store mode writes; where a primitive updates a tensor, the old
// value is an argument and the new one is returned. Undefined arrays mean what undefined tensors mean there.
#pragma once

#include <span>

#include "engine/backend/op_params.h"
#include "reference/array.h"

namespace heddle::reference {

// ---- elementwise.cpp ----------------------------------------------------------------------------------------------
Array unary(UnaryOp op, const Array& x, double a = 0, double b = 0);
Array unary_backward(UnaryOp op, const Array& x, const Array& y, const Array& dy, double a = 0, double b = 0);
Shape broadcast_shape(const Shape& a, const Shape& b);
Array binary(BinaryOp op, const Array& a, const Array& b);
Array where(const Array& condition, const Array& a, const Array& b);
Array axpy(double alpha, const Array& x, const Array& y);

// ---- indexing.cpp -------------------------------------------------------------------------------------------------
Array permute(const Array& x, std::span<const int> perm);
Array copy_range(const Array& x, std::int64_t x_begin, const Array& y, std::int64_t y_begin, int dim, std::int64_t n,
                 WriteMode mode);
Array index_select(const Array& x, const Array& index);
Array index_add(const Array& x, const Array& index, const Array& y);
Array gather(const Array& x, int dim, const Array& index);
Array scatter_add(const Array& x, int dim, const Array& index, const Array& y);

// ---- reduction.cpp ------------------------------------------------------------------------------------------------
// Reduced dimensions are kept as 1.
Array reduce(ReduceKind kind, const Array& x, std::uint32_t dim_mask);
// dim is kept as 1.
Array argmax(const Array& x, int dim);

// ---- matmul.cpp ---------------------------------------------------------------------------------------------------
Array matmul(const Array& a, const Array& b, const MatmulParams& params);
Array linear_forward(const Array& x, const Array& w, const Array& bias, bool relu);
Array linear_backward_data(const Array& dy, const Array& w, const Array& relu_mask);
Array linear_backward_weight(const Array& x, const Array& dy);
// Sum over all but the last dimension: the bias gradient of linear and convolution.
Array bias_gradient(const Array& dy);

// ---- conv2d.cpp ---------------------------------------------------------------------------------------------------
Shape conv2d_output_shape(const Shape& x, const Shape& w, const Conv2dParams& params);
Array conv2d_forward(const Array& x, const Array& w, const Array& bias, const Conv2dParams& params, bool relu);
Array conv2d_backward_data(const Array& dy, const Array& w, const Conv2dParams& params, const Array& relu_mask,
                           const Shape& x_shape);
Array conv2d_backward_weight(const Array& x, const Array& dy, const Conv2dParams& params, const Shape& w_shape);

// ---- pooling.cpp --------------------------------------------------------------------------------------------------
Shape pool2d_output_shape(const Shape& x, const Pool2dParams& params);
struct MaxPool {
  Array y, argmax;  // argmax: position in the window; of the first largest element, the first NaN if there is one
};
MaxPool max_pool2d_forward(const Array& x, const Pool2dParams& params, bool relu);
// From x, so that it does not depend on how a backend writes argmax.
Array max_pool2d_backward(const Array& dy, const Array& x, const Pool2dParams& params, bool relu);
Array avg_pool2d_forward(const Array& x, const Pool2dParams& params);
Array avg_pool2d_backward(const Array& dy, const Pool2dParams& params, const Array& relu_mask, const Shape& x_shape);
MaxPool adaptive_max_pool2d_forward(const Array& x, std::int64_t out_h, std::int64_t out_w);
Array adaptive_max_pool2d_backward(const Array& dy, const Array& x);
Array adaptive_avg_pool2d_forward(const Array& x, std::int64_t out_h, std::int64_t out_w);
Array adaptive_avg_pool2d_backward(const Array& dy, const Shape& x_shape);

// ---- batch_norm.cpp -----------------------------------------------------------------------------------------------
struct BatchNormSettings {
  bool relu = false;
  bool batch_statistics = true;  // false: the running statistics normalise, and stay
  double eps = 1e-5, momentum = 0.1;
};
struct BatchNorm {
  Array y, mean, inv_std, running_mean, running_var;
};
// addend, and with batch statistics the running ones, may be undefined.
BatchNorm batch_norm_forward(const Array& x, const Array& scale, const Array& shift, const Array& addend,
                             const BatchNormSettings& settings, const Array& running_mean, const Array& running_var);
struct BatchNormGradients {
  Array dx, dscale, dshift, daddend;
};
BatchNormGradients batch_norm_backward(const Array& x, const Array& dy, const Array& scale, const BatchNorm& forward,
                                       const BatchNormSettings& settings, const Array& x_relu_mask);

// ---- softmax.cpp --------------------------------------------------------------------------------------------------
Array softmax_forward(const Array& x, bool log);
Array softmax_backward(const Array& y, const Array& dy, bool log);
struct CrossEntropy {
  Array row_loss, dlogits, stats;  // stats: what the call adds to the tail
};
CrossEntropy cross_entropy(const Array& logits, const Array& labels, const Array& class_weight,
                           const CrossEntropyParams& params);

// A stream's counter, if it has one, is an address in host memory here.
// ---- random.cpp ---------------------------------------------------------------------------------------------------
Array dropout(const Array& x, double p, const RandomStream& random);
Array random_uniform(double low, double high, const RandomStream& random, const Shape& shape);
Array random_normal(double mean, double stddev, const RandomStream& random, const Shape& shape);

// ---- update.cpp ---------------------------------------------------------------------------------------------------
// The scalars of step_scalar.
Array prepare_update(const Array& gradients, const Array& tail, double max_norm, bool divide);
struct UpdateValues {
  double learning_rate = 0, gradient_scale = 1, step = 1;
};
// One range of the flat buffers; what is outside stays.
struct SgdState {
  Array w, velocity;
};
SgdState sgd_update(const Array& w, const Array& gradient, const Array& velocity, const SgdRange& range,
                    const UpdateValues& values);
struct AdamState {
  Array w, first_moment, second_moment;
};
AdamState adam_update(const Array& w, const Array& gradient, const Array& first_moment, const Array& second_moment,
                      const AdamRange& range, const UpdateValues& values);

// ---- gather_images.cpp --------------------------------------------------------------------------------------------
struct Batch {
  Array images, labels;
};
// The cursor says where the batch begins and the epoch.
Batch gather_images(const Array& images, const Array& labels, const Array& order, const Array& cursor, std::int64_t n,
                    const GatherImagesParams& params);

}  // namespace heddle::reference
