// Comparison of a run with an earlier one's JSON.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/runner.h"
#include "tools/json.h"

namespace heddle::tools::bench {

struct Comparison {
  int compared = 0;                      // kernels that both reports have
  std::vector<std::string> regressions;  // one line each
  std::vector<std::string> notes;        // what could not be compared, and other machines
};

// Compares the fastest warm call of each kernel, which the neighbours on a shared machine disturb least: slower by more
// than `max_regression` (0.05: 5 %) is a regression. Throws: UsageError if `baseline` is no report.
Comparison compare_with_baseline(const Json& baseline, const Json& machine, const std::vector<OpResult>& results,
                                 double max_regression);

// "5%" or "5": 0.05. Throws: UsageError.
double parse_percent(const std::string& text, const std::string& flag);

}  // namespace heddle::tools::bench
