#include "engine/nn/conv2d.h"

#include "engine/nn/init.h"
#include "engine/ops/ops.h"

namespace heddle::nn {

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, const Conv2dOptions& options)
    : in_channels_(in_channels),
      out_channels_(out_channels),
      options_(options),
      params_{.stride_h = options.stride.h,
              .stride_w = options.stride.w,
              .padding_h = options.padding.h,
              .padding_w = options.padding.w,
              .dilation_h = options.dilation.h,
              .dilation_w = options.dilation.w,
              .groups = options.groups} {
  const Conv2dOptions& o = options_;
  const auto at_least = [](const Size2d& size, std::int64_t n) { return size.h >= n && size.w >= n; };
  HEDDLE_CHECK(in_channels >= 1 && out_channels >= 1, description(), ": channels must be at least 1");
  HEDDLE_CHECK(at_least(o.kernel_size, 1) && at_least(o.stride, 1) && at_least(o.dilation, 1) && at_least(o.padding, 0),
               description(), ": kernel size ", o.kernel_size, ", stride ", o.stride, " and dilation ", o.dilation,
               " must be at least 1, padding ", o.padding, " at least 0");
  HEDDLE_CHECK(o.groups >= 1 && in_channels % o.groups == 0 && out_channels % o.groups == 0, description(), ": ",
               o.groups, " groups do not divide ", in_channels, " input and ", out_channels, " output channels");
  weight_ = register_parameter("weight", {out_channels, o.kernel_size.h, o.kernel_size.w, in_channels / o.groups},
                               {.kind = ParameterLayout::Kind::conv_weight});
  if (o.bias) bias_ = register_parameter("bias", {out_channels});
}

Variable Conv2d::forward(const Variable& x) { return ops::conv2d(x, weight_, bias_, params_); }

Variable Conv2d::forward_with_relu(const Variable& x) { return ops::conv2d_relu(x, weight_, bias_, params_); }

Variable Conv2d::forward_with_relu_and_pool(const Variable& x, const Pooling2d& pooling) {
  return ops::conv2d_relu_pool2d(x, weight_, bias_, params_, pooling);
}

FeatureMap Conv2d::trace(const FeatureMap& input) {
  HEDDLE_CHECK(!input.flattened, description(), ": its input is flattened");
  HEDDLE_CHECK(input.channels == 0 || input.channels == in_channels_, description(), ": its input has ", input.channels,
               " channels");
  return {.channels = out_channels_};
}

std::string Conv2d::description() const {
  const Conv2dOptions& o = options_;
  std::string text =
      join_text("Conv2d(", in_channels_, ", ", out_channels_, ", kernel_size=", o.kernel_size, ", stride=", o.stride);
  if (o.padding != Size2d(0)) text += join_text(", padding=", o.padding);
  if (o.dilation != Size2d(1)) text += join_text(", dilation=", o.dilation);
  if (o.groups != 1) text += join_text(", groups=", o.groups);
  if (!o.bias) text += ", bias=False";
  return text + ")";
}

void Conv2d::reset_own_parameters(Philox& random) {
  init::torch_default(weight_.mutable_data(), bias_.defined() ? bias_.mutable_data() : Tensor(), random);
}

}  // namespace heddle::nn
