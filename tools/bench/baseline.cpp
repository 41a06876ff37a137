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
NamedSeconds read_kernels(const Json& report) {
  NamedSeconds seconds;
  for (const Json& result : report.at("results")) {
    for (const Json& kernel : result.at("kernels")) {
      if (!kernel.contains("warm")) continue;
      seconds.emplace_back(key_of(result.at("op"), result.at("sizes"), result.at("dtype"), kernel.at("source")),
                           kernel.at("warm").at("min_seconds"));
    }
  }
  return seconds;
}

}  // namespace

Comparison compare_times(const Json& baseline, const std::function<NamedSeconds(const Json& report)>& read,
                         const Json& machine, const NamedSeconds& now, double max_regression) {
  std::map<std::string, double> before;
  try {
    for (const auto& [name, seconds] : read(baseline)) before[name] = seconds;
  } catch (const Json::exception&) {
    throw UsageError("--baseline: the file is no report of this benchmark's --json");
  }
  Comparison comparison;
  for (const char* name : {"device", "threads"}) {
    const Json& then = baseline.value("machine", Json::object());
    if (then.contains(name) && machine.contains(name) && then[name] != machine[name]) {
      comparison.notes.push_back(fmt::format("the baseline was made with another {}: {}", name, then[name].dump()));
    }
  }
  comparison.measured = static_cast<int>(now.size());
  for (const auto& [name, seconds] : now) {
    const auto found = before.find(name);
    if (found == before.end()) {
      comparison.notes.push_back("not in the baseline: " + name);
      continue;
    }
    ++comparison.compared;
    if (seconds <= found->second * (1 + max_regression)) continue;
    comparison.regressions.push_back(fmt::format("{}: {} now, {} before, {:+.1f}%", name, format_seconds(seconds),
                                                 format_seconds(found->second), (seconds / found->second - 1) * 100));
  }
  return comparison;
}

bool report_comparison(const Comparison& comparison, const char* what, const std::string& path, double max_regression,
                       Console& out) {
  for (const std::string& note : comparison.notes) out.line("note     " + note);
  for (const std::string& line : comparison.regressions) out.line("slower   " + line);
  out.line(fmt::format("baseline {} {} compared with {}, {} slower by more than {:g}%", comparison.compared, what, path,
                       comparison.regressions.size(), max_regression * 100));
  // A gate that compares nothing would pass whatever happens.
  if (comparison.compared == 0 && comparison.measured > 0) out.line("slower   nothing of this run is in the baseline");
  return comparison.regressions.empty() && (comparison.compared > 0 || comparison.measured == 0);
}

Comparison compare_with_baseline(const Json& baseline, const Json& machine, const std::vector<OpResult>& results,
                                 double max_regression) {
  NamedSeconds now;
  for (const OpResult& r : results) {
    for (const KernelResult& kernel : r.kernels) {
      if (!kernel.warm) continue;
      now.emplace_back(key_of(r.op, r.sizes, name_of(r.dtype), name_of(kernel.source)), kernel.warm->timing.min);
    }
  }
  return compare_times(baseline, read_kernels, machine, now, max_regression);
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
