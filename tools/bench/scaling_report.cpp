#include "tools/bench/scaling_report.h"

#include <fmt/format.h>

#include "tools/bench/report.h"

namespace heddle::tools::bench {
namespace {

const char* backend_text(const ScalingCase& what) { return what.backend.empty() ? "-" : what.backend.c_str(); }

std::string key_of(const std::string& mode, const std::string& backend, int ranks, std::int64_t batch_size) {
  return fmt::format("{}{}, {} ranks, batch {}", mode, backend.empty() ? "" : " " + backend, ranks, batch_size);
}

std::string share_text(double part, double whole) {
  return fmt::format("{} ({:.1f}%)", format_seconds(part), whole > 0 ? part / whole * 100 : 0.0);
}

}  // namespace

std::vector<std::string> scaling_lines(const ScalingOptions& options, const ScalingReport& report) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format(
      "model           {}, batch {} on one rank, {} bytes of gradients in {} calls a step; {} threads a rank, {} cores",
      options.model, options.batch_size, report.gradient_nbytes(), report.bucket_numels.size(),
      options.threads_per_rank, options.cores));
  lines.push_back(
      fmt::format("rounds          {} of {} steps a case, which take turns", options.rounds, options.steps));
  lines.emplace_back();
  lines.push_back(
      fmt::format("{:<8} {:<11} {:>5} {:>6}  {:>10} {:>20} {:>20} {:>9} {:>18} {:>10} {:>10} {:>10} {:>10} {:>6}",
                  "scaling", "backend", "ranks", "batch", "step", "compute", "exposed exchange", "hidden", "loader",
                  "images/s", "efficiency", "predicted", "fastest", "spread"));
  for (const ScalingResult& r : report.results) {
    lines.push_back(fmt::format(
        "{:<8} {:<11} {:>5} {:>6}  {:>10} {:>20} {:>20} {:>9} {:>18} {:>10.0f} {:>9.0f}% {:>10} {:>10} {:>5.0f}%",
        name_of(r.what.mode), backend_text(r.what), r.what.ranks, r.what.batch_size, format_seconds(r.split.step),
        share_text(r.split.compute, r.split.step), share_text(r.split.exposed, r.split.step),
        format_seconds(r.split.hidden), share_text(r.split.load, r.split.step), r.images_per_second, r.efficiency * 100,
        format_seconds(r.predicted_step_seconds), format_seconds(r.fastest_step_seconds), r.rounds.spread * 100));
  }
  lines.emplace_back();
  for (const ScalingResult& r : report.results) {
    if (r.all_reduce_seconds <= 0 || r.what.mode != ScalingMode::strong) continue;
    lines.push_back(fmt::format("exchange        {} on {} ranks: {} for the gradients of a step alone", r.what.backend,
                                r.what.ranks, format_seconds(r.all_reduce_seconds)));
  }
  return lines;
}

Json scaling_json(const Json& machine, const ScalingOptions& options, const ScalingReport& report) {
  Json list = Json::array();
  for (const ScalingResult& r : report.results) {
    list.push_back(
        {{"scaling", name_of(r.what.mode)},
         {"backend", r.what.backend},
         {"ranks", r.what.ranks},
         {"threads_per_rank", r.what.threads_of_rank()},
         {"batch_size", r.what.batch_size},
         {"step_seconds", r.split.step},
         {"compute_seconds", r.split.compute},
         {"exposed_communication_seconds", r.split.exposed},
         {"hidden_communication_seconds", r.split.hidden},
         {"loader_seconds", r.split.load},
         {"round_seconds",
          {{"median", r.rounds.median}, {"min", r.rounds.min}, {"max", r.rounds.max}, {"spread", r.rounds.spread}}},
         {"fastest_step_seconds", r.fastest_step_seconds},
         {"images_per_second", r.images_per_second},
         {"efficiency", r.efficiency},
         {"all_reduce_seconds", r.all_reduce_seconds},
         {"predicted_step_seconds", r.predicted_step_seconds},
         {"predicted_images_per_second", static_cast<double>(r.what.batch_size) / r.predicted_step_seconds}});
  }
  return {{"benchmark", "scaling"},
          {"machine", machine},
          {"model", options.model},
          {"batch_size", options.batch_size},
          {"threads_per_rank", options.threads_per_rank},
          {"cores", options.cores},
          {"steps", options.steps},
          {"rounds", options.rounds},
          {"gradient_bytes", report.gradient_nbytes()},
          {"bucket_elements", report.bucket_numels},
          {"results", std::move(list)}};
}

NamedSeconds scaling_seconds(const ScalingReport& report) {
  NamedSeconds seconds;
  for (const ScalingResult& r : report.results) {
    seconds.emplace_back(key_of(name_of(r.what.mode), r.what.backend, r.what.ranks, r.what.batch_size), r.rounds.min);
  }
  return seconds;
}

NamedSeconds read_scaling_seconds(const Json& report) {
  NamedSeconds seconds;
  for (const Json& r : report.at("results")) {
    seconds.emplace_back(key_of(r.at("scaling"), r.at("backend"), r.at("ranks"), r.at("batch_size")),
                         r.at("round_seconds").at("min"));
  }
  return seconds;
}

}  // namespace heddle::tools::bench
