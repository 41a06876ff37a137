// Convolution by the own kernels.
#include "kernels/cuda/conv2d_list.h"
#include "kernels/cuda/visit.h"
#include "kernels/launch/matrix_kernels.h"

namespace heddle::cuda {
namespace {

template <class T>
ConvForwardArguments<T> arguments(const ConvForwardCall& call) {
  return {.g = call.g,
          .x = data_of<T>(call.x),
          .w = data_of<T>(call.w),
          .bias = data_of<T>(call.bias),
          .relu = call.relu,
          .y = data_of<T>(call.y)};
}
template <class T>
ConvBackwardDataArguments<T> arguments(const ConvBackwardDataCall& call) {
  return {.g = call.g,
          .dy = data_of<T>(call.dy),
          .w = data_of<T>(call.w),
          .relu_mask = data_of<T>(call.relu_mask),
          .dx = data_of<T>(call.dx),
          .add = call.mode == WriteMode::add};
}
template <class T>
ConvBackwardWeightArguments<T> arguments(const ConvBackwardWeightCall& call) {
  return {.g = call.g,
          .x = data_of<T>(call.x),
          .dy = data_of<T>(call.dy),
          .dw = data_of<T>(call.dw),
          .db = call.db == nullptr ? nullptr : data_of<T>(*call.db),
          .add = call.mode == WriteMode::add};
}

}  // namespace

bool conv_forward_direct_supports(const ConvForwardCall& call) { return direct_conv_forward_takes(call.g); }
bool conv_backward_data_direct_supports(const ConvBackwardDataCall& call) {
  return direct_conv_backward_data_takes(call.g);
}
bool conv_backward_weight_direct_supports(const ConvBackwardWeightCall& call) {
  return direct_conv_backward_weight_takes(call.g);
}

bool conv_forward_direct(const ConvForwardCall& call, const ConvPlace& place) {
  visit_floats("conv2d_forward", call.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    direct_conv_forward(arguments<T>(call), place.stream);
  });
  return true;
}

bool conv_backward_data_direct(const ConvBackwardDataCall& call, const ConvPlace& place) {
  visit_floats("conv2d_backward_data", call.dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    direct_conv_backward_data(arguments<T>(call), place.stream);
  });
  return true;
}

bool conv_backward_weight_direct(const ConvBackwardWeightCall& call, const ConvPlace& place) {
  const SplitMemory memory(plan_direct_conv_backward_weight(call.g), place.device, place.tickets, place.stream);
  visit_floats("conv2d_backward_weight", call.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    direct_conv_backward_weight(arguments<T>(call), memory.scratch(), place.stream);
  });
  return true;
}

bool conv_forward_tiles(const ConvForwardCall& call, const ConvPlace& place) {
  const SplitMemory memory(plan_conv_forward(call.g), place.device, place.tickets, place.stream);
  visit_floats("conv2d_forward", call.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    conv_forward(arguments<T>(call), memory.scratch(), place.stream);
  });
  return true;
}

bool conv_backward_data_tiles(const ConvBackwardDataCall& call, const ConvPlace& place) {
  const SplitMemory memory(plan_conv_backward_data(call.g), place.device, place.tickets, place.stream);
  visit_floats("conv2d_backward_data", call.dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    conv_backward_data(arguments<T>(call), memory.scratch(), place.stream);
  });
  return true;
}

bool conv_backward_weight_tiles(const ConvBackwardWeightCall& call, const ConvPlace& place) {
  const SplitMemory memory(plan_conv_backward_weight(call.g), place.device, place.tickets, place.stream);
  visit_floats("conv2d_backward_weight", call.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    conv_backward_weight(arguments<T>(call), memory.scratch(), place.stream);
  });
  return true;
}

}  // namespace heddle::cuda
