// The part of shape_rules.h about layers: linear, convolution, pooling.
#include <algorithm>

#include "engine/ops/shape_rules.h"

namespace heddle::ops {
namespace {

constexpr std::int64_t kLargest32 = (std::int64_t{1} << 31) - 1;

void check_bias(const char* op, const Tensor& w, const Tensor& bias) {
  if (!bias.defined()) return;
  check_same_dtype(op, "w", w, "bias", bias);
  HEDDLE_CHECK(bias.rank() == 1 && bias.dim(0) == w.dim(0), op, ": w ", w.shape(), " has ", w.dim(0),
               " outputs, bias is ", bias.shape());
}

// Size along one axis, rounded down. Throws if the kernel does not fit at all, or would meet nothing but padding.
std::int64_t window_count(const char* op, const char* axis, const Shape& x, std::int64_t size, std::int64_t extent,
                          std::int64_t stride, std::int64_t padding, bool round_up) {
  HEDDLE_CHECK(size >= 1 && size <= kLargest32, op, ": the ", axis, " of x ", x, " is ", size, ", needs 1 to ",
               kLargest32);
  HEDDLE_CHECK(extent <= size + 2 * padding, op, ": kernel ", axis, " ", extent, " is larger than the padded input's ",
               size + 2 * padding, " (", size, " + 2*", padding, "); x ", x);
  const std::int64_t room = size + 2 * padding - extent;
  if (!round_up) return room / stride + 1;
  std::int64_t count = (room + stride - 1) / stride + 1;
  if ((count - 1) * stride >= size + padding) --count;
  return count;
}

// Keeps the arithmetic of window_count far from overflow.
void check_small(const char* op, std::initializer_list<std::int64_t> values) {
  for (const std::int64_t value : values) {
    HEDDLE_CHECK(value <= kLargest32, op, ": ", value,
                 " is too large, kernel, stride, padding and dilation are at most ", kLargest32);
  }
}

// Positions inside a window or an image are kept in 32 bits for the backward pass.
void check_positions(const char* op, const char* what, std::int64_t height, std::int64_t width) {
  HEDDLE_CHECK(height <= kLargest32 / width, op, ": ", what, " of ", height, "x", width, " has more than ", kLargest32,
               " positions");
}

}  // namespace

Shape linear_shape(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias) {
  check_float(op, "x", x);
  check_same_dtype(op, "x", x, "w", w);
  check_rank(op, "w", w, 2);
  HEDDLE_CHECK(x.rank() >= 1 && x.dim(-1) == w.dim(1), op, ": x has ",
               x.rank() >= 1 ? join_text(x.dim(-1)) : std::string("no"), " features, w expects ", w.dim(1), "; x ",
               x.shape(), ", w ", w.shape());
  check_bias(op, w, bias);
  std::vector<std::int64_t> dims(x.shape().dims().begin(), x.shape().dims().end());
  dims.back() = w.dim(0);
  return Shape(dims);
}

Shape conv2d_shape(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& p) {
  check_float(op, "x", x);
  check_same_dtype(op, "x", x, "w", w);
  check_rank(op, "x", x, 4);
  check_rank(op, "w", w, 4);
  HEDDLE_CHECK(p.stride_h >= 1 && p.stride_w >= 1, op, ": stride is (", p.stride_h, ",", p.stride_w, "), needs >= 1");
  HEDDLE_CHECK(p.padding_h >= 0 && p.padding_w >= 0, op, ": padding is (", p.padding_h, ",", p.padding_w,
               "), needs >= 0");
  HEDDLE_CHECK(p.dilation_h >= 1 && p.dilation_w >= 1, op, ": dilation is (", p.dilation_h, ",", p.dilation_w,
               "), needs >= 1");
  check_small(op, {w.dim(1), w.dim(2), p.stride_h, p.stride_w, p.padding_h, p.padding_w, p.dilation_h, p.dilation_w});
  HEDDLE_CHECK(p.groups >= 1 && p.groups <= std::max<std::int64_t>(x.dim(3), 1), op, ": groups is ", p.groups,
               ", needs 1 to the ", x.dim(3), " channels of x ", x.shape());
  HEDDLE_CHECK(w.numel() > 0, op, ": w is empty: ", w.shape());
  HEDDLE_CHECK(x.dim(3) == w.dim(3) * p.groups, op, ": x has ", x.dim(3), " channels, w expects ", w.dim(3) * p.groups,
               "; x ", x.shape(), ", w ", w.shape(), ", groups ", p.groups);
  HEDDLE_CHECK(w.dim(0) % p.groups == 0, op, ": w has ", w.dim(0), " outputs, which ", p.groups,
               " groups do not divide; w ", w.shape());
  check_bias(op, w, bias);
  const std::int64_t extent_h = p.dilation_h * (w.dim(1) - 1) + 1, extent_w = p.dilation_w * (w.dim(2) - 1) + 1;
  return {x.dim(0), window_count(op, "height", x.shape(), x.dim(1), extent_h, p.stride_h, p.padding_h, false),
          window_count(op, "width", x.shape(), x.dim(2), extent_w, p.stride_w, p.padding_w, false), w.dim(0)};
}

Shape pool2d_shape(const char* op, const Tensor& x, const Pool2dParams& p) {
  check_float(op, "x", x);
  check_rank(op, "x", x, 4);
  return pool2d_shape(op, x.shape(), p);
}

Shape pool2d_shape(const char* op, const Shape& x, const Pool2dParams& p) {
  HEDDLE_CHECK(p.kernel_h >= 1 && p.kernel_w >= 1, op, ": kernel is (", p.kernel_h, ",", p.kernel_w, "), needs >= 1");
  HEDDLE_CHECK(p.stride_h >= 1 && p.stride_w >= 1, op, ": stride is (", p.stride_h, ",", p.stride_w, "), needs >= 1");
  HEDDLE_CHECK(p.padding_h >= 0 && p.padding_w >= 0 && p.padding_h < p.kernel_h && p.padding_w < p.kernel_w, op,
               ": padding (", p.padding_h, ",", p.padding_w, ") with kernel (", p.kernel_h, ",", p.kernel_w,
               ") makes a window of padding only; it has to be at least 0 and below the kernel");
  check_small(op, {p.kernel_h, p.kernel_w, p.stride_h, p.stride_w});
  check_positions(op, "the window", p.kernel_h, p.kernel_w);
  return {x[0], window_count(op, "height", x, x[1], p.kernel_h, p.stride_h, p.padding_h, p.ceil_mode),
          window_count(op, "width", x, x[2], p.kernel_w, p.stride_w, p.padding_w, p.ceil_mode), x[3]};
}

Shape adaptive_pool2d_shape(const char* op, const Tensor& x, std::int64_t out_h, std::int64_t out_w) {
  check_float(op, "x", x);
  check_rank(op, "x", x, 4);
  HEDDLE_CHECK(out_h >= 1 && out_w >= 1, op, ": output size (", out_h, ",", out_w, ") needs >= 1; x ", x.shape());
  HEDDLE_CHECK(x.dim(1) >= 1 && x.dim(2) >= 1, op, ": x ", x.shape(), " has no pixels for output (", out_h, ",", out_w,
               ")");
  check_small(op, {out_h, out_w});
  check_positions(op, "an image", x.dim(1), x.dim(2));
  return {x.dim(0), out_h, out_w, x.dim(3)};
}

namespace {

void check_channel_vector(const char* op, const char* name, const Tensor& v, const Tensor& x) {
  check_defined(op, name, v);
  check_dtype(op, name, v, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
  check_same_device(op, "x", x, name, v);
  HEDDLE_CHECK(v.rank() == 1 && v.dim(0) == x.dim(-1), op, ": x ", x.shape(), " has ", x.dim(-1), " channels, ", name,
               " is ", v.shape());
}

}  // namespace

void check_batch_norm(const char* op, const Tensor& x, const Tensor& addend, const Tensor& scale, const Tensor& shift) {
  check_float(op, "x", x);
  HEDDLE_CHECK(x.rank() >= 2 && x.dim(-1) >= 1, op, ": x ", x.shape(),
               " has no channels, it needs at least 2 dimensions, the last of at least 1");
  check_channel_vector(op, "scale", scale, x);
  check_channel_vector(op, "shift", shift, x);
  if (!addend.defined()) return;
  check_same_dtype(op, "x", x, "addend", addend);
  HEDDLE_CHECK(x.shape() == addend.shape(), op, ": x is ", x.shape(), ", addend ", addend.shape());
}

void check_running_statistics(const char* op, const Tensor& x, const Tensor& mean, const Tensor& var) {
  check_channel_vector(op, "running_mean", mean, x);
  check_channel_vector(op, "running_var", var, x);
}

void check_batch_norm_rows(const char* op, const Shape& x, std::int64_t rows) {
  HEDDLE_CHECK(rows != 1, op, ": a batch with one value per channel has no variance to train with; x ", x,
               "; a larger batch or image is needed, or evaluation mode");
}

}  // namespace heddle::ops
