// Time of a call, with the operands in the caches (warm) and outside of them (cold). Only finished work counts, by the
// device's own clock where it has one (Stopwatch): on a GPU neither queueing a call nor waiting for it is in the time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/device/device_runtime.h"
#include "engine/tensor/tensor.h"

namespace heddle::tools::bench {

// Seconds of one call, over all repeats.
struct Timing {
  double median = 0, min = 0, max = 0;
  double spread = 0;       // (third quartile - first quartile) / median
  int repeats = 0;         // times that the clock was started and stopped
  std::int64_t calls = 0;  // calls in between; one repeat counts as their mean
};

// Throws: InvalidArgument if there are none.
Timing summarize(std::vector<double> seconds, std::int64_t calls);

// Before anything is timed, a call is made at least so often and for so long, so that plans, clocks and caches settle.
inline constexpr int kWarmUpCalls = 3;
inline constexpr double kWarmUpSeconds = 0.02;
// How many calls of `seconds` are timed as a group, so that reading the clock costs nothing against it.
std::int64_t calls_in_group(double seconds);

class Timer {
 public:
  // cache_nbytes: size of the device's largest cache; cold runs are preceded by touching more memory than that.
  Timer(Device device, double cache_nbytes);
  // After a warm-up. Calls are timed in groups that take a millisecond.
  Timing warm(const std::function<void()>& call, int repeats);
  // One call a repeat, each after the caches were filled with other data.
  Timing cold(const std::function<void()>& call, int repeats);

 private:
  double seconds_of(const std::function<void()>& call, std::int64_t calls);
  void fill_caches();

  Device device_;
  std::unique_ptr<Stopwatch> stopwatch_;
  Tensor other_;  // the other data
};

}  // namespace heddle::tools::bench
