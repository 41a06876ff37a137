// The devices that tests run on.
#pragma once

#include <vector>

#include "engine/core/dtype.h"
#include "engine/device/device_runtime.h"

namespace heddle::testing {

// The CPU, and the first GPU where the program has one.
inline std::vector<Device> test_devices() {
  std::vector<Device> devices{Device::cpu()};
  if (is_registered(Device::cuda(0))) devices.push_back(Device::cuda(0));
  return devices;
}

// f64 is the CPU's own.
inline bool holds(Device device, DType dtype) { return device.is_cpu() || dtype != DType::f64; }

}  // namespace heddle::testing
