#include "tools/bench/report.h"

#include <fmt/format.h>

#include <array>

#include "tools/bench/machine.h"

namespace heddle::tools::bench {
namespace {

// 12.3 with one of the prefixes k, M, G, T.
std::string with_prefix(double value, const char* unit) {
  static constexpr std::array kPrefixes = {"", "k", "M", "G", "T", "P"};
  std::size_t i = 0;
  for (; value >= 999.5 && i + 1 < kPrefixes.size(); ++i) value /= 1000;
  return fmt::format("{:.{}f} {}{}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kPrefixes[i], unit);
}

std::string kernel_name(const KernelResult& kernel) {
  return kernel.kernel.empty() ? name_of(kernel.source) : fmt::format("{} {}", name_of(kernel.source), kernel.kernel);
}

std::string timing_text(const char* label, const Timing& t) {
  return fmt::format("{} {:>9} (min {}, spread {:.0f}%, {}x{})", label, format_seconds(t.median), format_seconds(t.min),
                     t.spread * 100, t.repeats, t.calls);
}

std::string speed_text(const Speed& speed, bool has_flops) {
  std::string text = fmt::format("{:>10}", format_rate(speed.bytes_per_second, "B/s"));
  if (has_flops) text += fmt::format(" {:>12}", format_rate(speed.flops_per_second, "flop/s"));
  if (speed.share > 0) text += fmt::format(" {:3.0f}% of {}", speed.share * 100, speed.bound);
  return text;
}

Json to_json(const Speed& speed) {
  return {{"median_seconds", speed.timing.median},
          {"min_seconds", speed.timing.min},
          {"max_seconds", speed.timing.max},
          {"spread", speed.timing.spread},
          {"repeats", speed.timing.repeats},
          {"calls_per_repeat", speed.timing.calls},
          {"bytes_per_second", speed.bytes_per_second},
          {"flops_per_second", speed.flops_per_second},
          {"share_of_limit", speed.share},
          {"limited_by", speed.bound}};
}

std::string csv_of(const std::optional<Speed>& speed) {
  if (!speed) return ",,,,,,,,";
  const Timing& t = speed->timing;
  return fmt::format("{:.9g},{:.9g},{:.9g},{:.4g},{},{},{:.6g},{:.6g},{:.4g}", t.median, t.min, t.max, t.spread,
                     t.repeats, t.calls, speed->bytes_per_second, speed->flops_per_second, speed->share);
}

}  // namespace

std::string format_seconds(double seconds) {
  if (seconds < 1e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string format_rate(double per_second, const char* unit) { return with_prefix(per_second, unit); }

std::vector<std::string> header_lines(const Conditions& c) {
  std::vector<std::string> lines = machine_lines(c.machine);
  if (!c.model.empty()) lines.push_back(fmt::format("{:<16}one step of {}, batch {}", "model", c.model, c.batch_size));
  if (!c.timed) return lines;
  const char* const how = c.limits.measured ? "measured in this run" : "from the device's properties";
  lines.push_back(
      fmt::format("{:<16}memory {}, multiply-adds in {} {} ({})", "limits",
                  c.limits.bytes_per_second > 0 ? format_rate(c.limits.bytes_per_second, "B/s") : "unknown",
                  name_of(c.options.dtype),
                  c.limits.flops_per_second > 0 ? format_rate(c.limits.flops_per_second, "flop/s") : "unknown", how));
  return lines;
}

std::vector<std::string> result_lines(const OpResult& r) {
  std::string head = fmt::format("{}  {}  {}", r.op, r.sizes, name_of(r.dtype));
  if (r.count > 1) head += fmt::format("  ({} times in the step)", r.count);
  head += fmt::format("  {}", with_prefix(r.nbytes, "B"));
  if (r.flops > 0) head += fmt::format(", {}", with_prefix(r.flops, "flop"));
  if (!r.not_offered.empty()) return {head, "  not offered: " + r.not_offered};
  std::vector<std::string> lines = {head};
  for (const KernelResult& kernel : r.kernels) {
    const std::string name =
        fmt::format("  {}{:<17}", kernel.automatic && r.kernels.size() > 1 ? "*" : " ", kernel_name(kernel));
    if (!kernel.check.ok) {
      lines.push_back(fmt::format("{}WRONG: {}; error {:.2g}, allowed {:.2g}", name, kernel.check.problem,
                                  kernel.check.error, kernel.check.tolerance));
      continue;
    }
    std::string line =
        fmt::format("{}right to {:.1e} of {:.1e} ({})", name, kernel.check.error, kernel.check.tolerance, r.checked);
    for (const auto& [label, speed] : {std::pair{"warm", &kernel.warm}, std::pair{"cold", &kernel.cold}}) {
      if (!*speed) continue;
      line +=
          fmt::format("\n{:<20}{:<62}{}", "", timing_text(label, (*speed)->timing), speed_text(**speed, r.flops > 0));
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> warning_lines(const std::vector<OpResult>& results, const Limits& limits) {
  std::vector<std::string> lines;
  for (const OpResult& r : results) {
    for (const KernelResult& kernel : r.kernels) {
      for (const auto& [label, speed] : {std::pair{"warm", &kernel.warm}, std::pair{"cold", &kernel.cold}}) {
        if (!*speed || !(*speed)->impossible) continue;
        lines.push_back(fmt::format(
            "{} {} ({}, {}): {} is faster than the {} of this device allows{}", r.op, r.sizes, kernel_name(kernel),
            label, format_seconds((*speed)->timing.min), (*speed)->bound,
            limits.measured ? "; the limit was measured on a busy machine, or what the op moves is overstated" : ""));
      }
    }
  }
  return lines;
}

double step_seconds(const std::vector<OpResult>& results, KernelChoice kernels) {
  double seconds = 0;
  for (const OpResult& r : results) {
    const KernelResult* chosen = nullptr;
    for (const KernelResult& kernel : r.kernels) {
      const bool wanted = kernels == KernelChoice::automatic
                              ? kernel.automatic
                              : (kernel.source == KernelSource::vendor) == (kernels == KernelChoice::vendor);
      if (chosen == nullptr || wanted) chosen = &kernel;
    }
    if (chosen != nullptr && chosen->warm) seconds += chosen->warm->timing.median * r.count;
  }
  return seconds;
}

Json to_json(const Conditions& c, const std::vector<OpResult>& results) {
  Json list = Json::array();
  for (const OpResult& r : results) {
    Json kernels = Json::array();
    for (const KernelResult& kernel : r.kernels) {
      Json json = {{"kernel", kernel.kernel},       {"source", name_of(kernel.source)},
                   {"automatic", kernel.automatic}, {"right", kernel.check.ok},
                   {"error", kernel.check.error},   {"tolerance", kernel.check.tolerance}};
      if (!kernel.check.ok) json["problem"] = kernel.check.problem;
      if (kernel.warm) json["warm"] = to_json(*kernel.warm);
      if (kernel.cold) json["cold"] = to_json(*kernel.cold);
      kernels.push_back(std::move(json));
    }
    Json json = {{"op", r.op},        {"sizes", r.sizes}, {"dtype", name_of(r.dtype)}, {"count", r.count},
                 {"bytes", r.nbytes}, {"flops", r.flops}, {"checked", r.checked},      {"kernels", kernels}};
    if (!r.not_offered.empty()) json["not_offered"] = r.not_offered;
    list.push_back(std::move(json));
  }
  Json report = {{"machine", c.machine},
                 {"kernels", name_of(c.options.kernels)},
                 {"repeats", c.options.repeats},
                 {"timed", c.timed}};
  if (!c.model.empty()) {
    report["model"] = c.model;
    report["batch_size"] = c.batch_size;
    if (c.timed) report["step_seconds"] = step_seconds(results, KernelChoice::automatic);
  }
  if (c.timed) {
    report["limits"] = {{"bytes_per_second", c.limits.bytes_per_second},
                        {"flops_per_second", c.limits.flops_per_second},
                        {"cache_bytes", c.limits.cache_nbytes},
                        {"measured", c.limits.measured}};
  }
  report["results"] = std::move(list);
  report["warnings"] = warning_lines(results, c.limits);
  return report;
}

std::string to_csv(const std::vector<OpResult>& results) {
  static constexpr const char* kTimed =
      "median_seconds,{0}_min_seconds,{0}_max_seconds,{0}_spread,{0}_repeats,{0}_calls_per_repeat,{0}_bytes_per_second,"
      "{0}_flops_per_second,{0}_share_of_limit";
  std::string text = "op,sizes,dtype,count,bytes,flops,kernel,source,automatic,right,error,tolerance,warm_" +
                     fmt::format(fmt::runtime(kTimed), "warm") + ",cold_" + fmt::format(fmt::runtime(kTimed), "cold") +
                     "\n";
  for (const OpResult& r : results) {
    for (const KernelResult& kernel : r.kernels) {
      text += fmt::format("{},{},{},{},{:.12g},{:.12g},{},{},{},{},{:.3g},{:.3g},{},{}\n", r.op, r.sizes,
                          name_of(r.dtype), r.count, r.nbytes, r.flops, kernel.kernel, name_of(kernel.source),
                          kernel.automatic, kernel.check.ok, kernel.check.error, kernel.check.tolerance,
                          csv_of(kernel.warm), csv_of(kernel.cold));
    }
  }
  return text;
}

}  // namespace heddle::tools::bench
