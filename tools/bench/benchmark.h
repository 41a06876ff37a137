// A whole run of `heddle bench`: every op in turn, printed as it is done, then files and the verdict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/bench/runner.h"
#include "tools/console.h"
#include "tools/runtime.h"

namespace heddle::tools::bench {

struct BenchmarkOptions {
  std::vector<Work> works;
  RunnerOptions runner;
  std::string model;            // "" if ops were named
  std::int64_t batch_size = 0;  // of the model
  std::string json, csv;        // files to write; "" = none
  std::string baseline;         // file to compare with; "" = none
  double max_regression = 0.05;
  std::optional<Limits> limits;  // instead of the device's own, for tests
};

// Returns the exit code: failed if a kernel is wrong, or slower than the baseline allows. On a simulated device kernels
// are compared and what they move is counted, but nothing is timed. Throws: UsageError, IoError, DeviceError.
int run_benchmark(const BenchmarkOptions& options, const Runtime& runtime, Backend& backend, Console& out,
                  Console& err);

}  // namespace heddle::tools::bench
