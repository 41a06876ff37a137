// The helpers of reference/values.h under the namespace of the tests.
#pragma once

#include "reference/values.h"

namespace heddle::testing {

using reference::array_of;
using reference::counting_array;
using reference::integer_array;
using reference::random_array;
using reference::tensor_of;

}  // namespace heddle::testing
