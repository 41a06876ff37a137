// What a device can do at most: the scale on which kernels are judged.
#pragma once

#include <string>

#include "engine/core/dtype.h"
#include "engine/device/device.h"

namespace heddle::tools::bench {

struct Limits {
  double bytes_per_second = 0;  // to and from memory, read + write; 0: unknown
  double flops_per_second = 0;  // in the dtype of the run; 0: unknown
  double cache_nbytes = 0;      // largest cache; 0: unknown
  bool measured = false;        // in this run, else from the device's properties
};

// For a CPU this measures, for about a second: copying and reading memory (the better of the two counts), and
// multiply-adds in registers, with the threads of the run. For a GPU it asks the device for its properties.
Limits find_limits(Device device, DType dtype);

// A case against the limits: the time that they allow, and which of them decides. Seconds 0: nothing is known.
struct Bound {
  double seconds = 0;
  const char* by = "";  // "memory" or "arithmetic"
};
// `from_memory`: the operands have to come from memory, else they are in a cache and only arithmetic counts.
Bound bound_of(double nbytes, double flops, const Limits& limits, bool from_memory);

// A measured limit is itself a little uncertain; a time that undercuts its bound by more than this makes a warning.
double allowed_excess(const Limits& limits);

}  // namespace heddle::tools::bench
