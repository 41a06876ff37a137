// Matrix products and linear layers against the reference, for the backend of any device. Each function makes checks of
// the current test case.
#pragma once

#include "engine/device/device.h"

namespace heddle::testing {

// All shapes, transposes, batches and dtypes.
void expect_matmul(Device device);
void expect_linear_forward(Device device);
void expect_linear_backward(Device device);

}  // namespace heddle::testing
