// Comparison of a run with an earlier one's JSON.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/runner.h"
#include "tools/console.h"
#include "tools/json.h"

namespace heddle::tools::bench {

struct Comparison {
  int measured = 0;                      // what this run has
  int compared = 0;                      // what both reports have
  std::vector<std::string> regressions;  // one line each
  std::vector<std::string> notes;        // what could not be compared, and other machines
};

// Seconds by the name of what was timed.
using NamedSeconds = std::vector<std::pair<std::string, double>>;

// Compares the times of a run, whose machine is `machine`, with those that read() finds in an earlier report: longer by
// more than `max_regression` (0.05: 5 %) is a regression. Throws: UsageError if `baseline` is no report.
Comparison compare_times(const Json& baseline, const std::function<NamedSeconds(const Json& report)>& read,
                         const Json& machine, const NamedSeconds& now, double max_regression);

// Prints notes, regressions and the count. what: "kernels"; path: of the earlier report. Returns false if something
// regressed.
bool report_comparison(const Comparison& comparison, const char* what, const std::string& path, double max_regression,
                       Console& out);

// Compares the fastest warm call of each kernel, which the neighbours on a shared machine disturb least: slower by more
// than `max_regression` (0.05: 5 %) is a regression. Throws: UsageError if `baseline` is no report.
Comparison compare_with_baseline(const Json& baseline, const Json& machine, const std::vector<OpResult>& results,
                                 double max_regression);

// "5%" or "5": 0.05. Throws: UsageError.
double parse_percent(const std::string& text, const std::string& flag);

}  // namespace heddle::tools::bench
