// Convolution against the reference and against values worked out by hand, for the backend of any device. Each function
// makes checks of the current test case.
#pragma once

#include "engine/device/device.h"

namespace heddle::testing {

// All shapes, options and dtypes.
void expect_conv2d_forward(Device device);
void expect_conv2d_backward_data(Device device);
void expect_conv2d_backward_weight(Device device);

// Input that the stride leaves uncovered gets gradient zero.
void expect_uncovered_input_without_gradient(Device device);
// A 7x7 kernel with stride 3 and padding 2 has the gradients of its windows.
void expect_windows_of_stride_3(Device device);
// A 1x1 convolution with stride 2 reaches even positions only.
void expect_even_positions_only(Device device);

}  // namespace heddle::testing
