#include "engine/nn/pooling.h"

#include "engine/ops/ops.h"

namespace heddle::nn {
namespace {

std::string describe(const char* name, const Pool2dParams& p) {
  return join_text(name, "(kernel_size=", Size2d(p.kernel_h, p.kernel_w), ", stride=", Size2d(p.stride_h, p.stride_w),
                   ", padding=", Size2d(p.padding_h, p.padding_w), p.ceil_mode ? ", ceil_mode=True)" : ")");
}

Pool2dParams make_params(const char* name, const Pool2dOptions& options) {
  const Size2d stride = options.stride.value_or(options.kernel_size);
  const Pool2dParams p{.kernel_h = options.kernel_size.h,
                       .kernel_w = options.kernel_size.w,
                       .stride_h = stride.h,
                       .stride_w = stride.w,
                       .padding_h = options.padding.h,
                       .padding_w = options.padding.w,
                       .ceil_mode = options.ceil_mode,
                       .count_include_pad = options.count_include_pad};
  HEDDLE_CHECK(p.kernel_h >= 1 && p.kernel_w >= 1 && p.stride_h >= 1 && p.stride_w >= 1, describe(name, p),
               ": kernel size and stride must be at least 1");
  HEDDLE_CHECK(p.padding_h >= 0 && p.padding_w >= 0 && 2 * p.padding_h <= p.kernel_h && 2 * p.padding_w <= p.kernel_w,
               describe(name, p), ": padding must be between 0 and half the kernel size");
  return p;
}

void check_output_size(const std::string& description, const Size2d& size) {
  HEDDLE_CHECK(size.h >= 1 && size.w >= 1, description, ": the output size must be at least 1");
}

}  // namespace

MaxPool2d::MaxPool2d(const Pool2dOptions& options) : params_(make_params("MaxPool2d", options)) {}

Variable MaxPool2d::forward(const Variable& x) { return ops::max_pool2d(x, params_); }

Variable MaxPool2d::forward_after_relu(const Variable& x) { return ops::relu_max_pool2d(x, params_); }

std::string MaxPool2d::description() const { return describe("MaxPool2d", params_); }

AvgPool2d::AvgPool2d(const Pool2dOptions& options) : params_(make_params("AvgPool2d", options)) {}

Variable AvgPool2d::forward(const Variable& x) { return ops::avg_pool2d(x, params_); }

std::string AvgPool2d::description() const { return describe("AvgPool2d", params_); }

AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2d output_size) : output_size_(output_size) {
  check_output_size(description(), output_size_);
}

Variable AdaptiveAvgPool2d::forward(const Variable& x) {
  return ops::adaptive_avg_pool2d(x, output_size_.h, output_size_.w);
}

std::string AdaptiveAvgPool2d::description() const {
  return join_text("AdaptiveAvgPool2d(output_size=", output_size_, ")");
}

AdaptiveMaxPool2d::AdaptiveMaxPool2d(Size2d output_size) : output_size_(output_size) {
  check_output_size(description(), output_size_);
}

Variable AdaptiveMaxPool2d::forward(const Variable& x) {
  return ops::adaptive_max_pool2d(x, output_size_.h, output_size_.w);
}

std::string AdaptiveMaxPool2d::description() const {
  return join_text("AdaptiveMaxPool2d(output_size=", output_size_, ")");
}

}  // namespace heddle::nn
