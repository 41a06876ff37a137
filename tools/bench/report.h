// The results of a benchmark for people (lines), for programs (JSON) and for spreadsheets (CSV).
#pragma once

#include <string>
#include <vector>

#include "tools/bench/runner.h"
#include "tools/json.h"

namespace heddle::tools::bench {

// What a report says once.
struct Conditions {
  Json machine = Json::object();  // names and versions, in the order in which they are shown
  std::string model;              // "" if ops were named
  std::int64_t batch_size = 0;    // of the model
  RunnerOptions options;
  Limits limits;
  bool timed = false;
};

// Lines above the results: machine, versions, limits.
std::vector<std::string> header_lines(const Conditions& conditions);
// An op and its kernels.
std::vector<std::string> result_lines(const OpResult& result);
// Kernels whose fastest call is faster than the device can be.
std::vector<std::string> warning_lines(const std::vector<OpResult>& results, const Limits& limits);

// Seconds of all ops of a step together, each as often as the step has it: by the kernels that `--kernels` chooses
// (automatic) or by those of one kind where there are. 0 if nothing was timed.
double step_seconds(const std::vector<OpResult>& results, KernelChoice kernels);

Json to_json(const Conditions& conditions, const std::vector<OpResult>& results);
// One line a kernel, with a header. Seconds and bytes are plain numbers; what was not measured is empty.
std::string to_csv(const std::vector<OpResult>& results);

// "123.4 us"
std::string format_seconds(double seconds);
// "12.3 GB/s" with the unit given
std::string format_rate(double per_second, const char* unit);

}  // namespace heddle::tools::bench
