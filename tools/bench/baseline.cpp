#include "tools/bench/baseline.h"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "tools/bench/report.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {
namespace {

std::string key_of(const std::string& op, const std::string& sizes, const std::string& dtype,
                   const std::string& source) {
  return fmt::format("{} {} {} {}", op, sizes, dtype, source);
}

// Seconds of the fastest warm call by key.
std::map<std::string, double> read_baseline(const Json& baseline) {
  std::map<std::string, double> seconds;
  try {
    for (const Json& result : baseline.at("results")) {
      for (const Json& kernel : result.at("kernels")) {
        if (!kernel.contains("warm")) continue;
        seconds[key_of(result.at("op"), result.at("sizes"), result.at("dtype"), kernel.at("source"))] =
            kernel.at("warm").at("min_seconds");
      }
    }
  } catch (const Json::exception&) {
    throw UsageError("--baseline: the file is no report of heddle bench --json");
  }
  return seconds;
}

}  // namespace

Comparison compare_with_baseline(const Json& baseline, const Json& machine, const std::vector<OpResult>& results,
                                 double max_regression) {
  const std::map<std::string, double> before = read_baseline(baseline);
  Comparison comparison;
  for (const char* name : {"device", "threads"}) {
    const Json& then = baseline.value("machine", Json::object());
    if (then.contains(name) && machine.contains(name) && then[name] != machine[name]) {
      comparison.notes.push_back(fmt::format("the baseline was made with another {}: {}", name, then[name].dump()));
    }
  }
  for (const OpResult& r : results) {
    for (const KernelResult& kernel : r.kernels) {
      if (!kernel.warm) continue;
      const std::string key = key_of(r.op, r.sizes, name_of(r.dtype), name_of(kernel.source));
      const auto found = before.find(key);
      if (found == before.end()) {
        comparison.notes.push_back("not in the baseline: " + key);
        continue;
      }
      ++comparison.compared;
      const double now = kernel.warm->timing.min;
      if (now <= found->second * (1 + max_regression)) continue;
      comparison.regressions.push_back(fmt::format("{}: {} now, {} before, {:+.1f}%", key, format_seconds(now),
                                                   format_seconds(found->second), (now / found->second - 1) * 100));
    }
  }
  return comparison;
}

double parse_percent(const std::string& text, const std::string& flag) {
  const std::string_view number = std::string_view(text).substr(0, text.ends_with('%') ? text.size() - 1 : text.size());
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{} || end != number.data() + number.size() || !(value >= 0 && value <= 1e6)) {
    throw UsageError(fmt::format("{} is '{}'; expected a percentage such as 5%", flag, text));
  }
  return value / 100;
}

}  // namespace heddle::tools::bench
