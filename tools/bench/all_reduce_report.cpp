#include "tools/bench/all_reduce_report.h"

#include <fmt/format.h>

#include "tools/bench/report.h"
#include "tools/system_info.h"

namespace heddle::tools::bench {
namespace {

std::string key_of(const std::string& backend, int ranks, const std::string& dtype, const std::string& op,
                   std::size_t nbytes) {
  return fmt::format("{}, {} ranks, {} {}, {} bytes", backend, ranks, dtype, op, nbytes);
}

}  // namespace

std::string all_reduce_heading(bool timed) {
  const std::string head =
      fmt::format("{:<11} {:>5} {:<5} {:<4} {:>10}  {:<6}", "backend", "ranks", "dtype", "op", "size", "check");
  if (!timed) return head;
  return head +
         fmt::format(" {:>10} {:>10} {:>10} {:>7} {:>11} {:>11}", "median", "min", "max", "spread", "algbw", "busbw");
}

std::string all_reduce_line(const AllReduceResult& r) {
  std::string line =
      fmt::format("{:<11} {:>5} {:<5} {:<4} {:>10}  {:<6}", r.what.backend, r.what.ranks, name_of(r.what.dtype),
                  comm::name_of(r.what.op), format_nbytes(r.what.nbytes()), r.wrong == 0 ? "right" : "WRONG");
  if (r.wrong > 0) return line + fmt::format(" {} elements; {}", r.wrong, r.problem);
  if (r.timing) {
    line +=
        fmt::format(" {:>10} {:>10} {:>10} {:>6.0f}% {:>11} {:>11}", format_seconds(r.timing->median),
                    format_seconds(r.timing->min), format_seconds(r.timing->max), r.timing->spread * 100,
                    format_rate(r.algorithm_bytes_per_second(), "B/s"), format_rate(r.bus_bytes_per_second(), "B/s"));
  }
  if (r.work.launches > 0) {
    line += fmt::format(" {} launches a rank, which read {} bytes and write {}", r.work.launches, r.work.read_nbytes,
                        r.work.written_nbytes);
  }
  return line;
}

Json all_reduce_json(const Json& machine, const std::vector<AllReduceResult>& results, bool timed) {
  Json list = Json::array();
  for (const AllReduceResult& r : results) {
    Json json = {{"backend", r.what.backend},      {"ranks", r.what.ranks},    {"dtype", name_of(r.what.dtype)},
                 {"op", comm::name_of(r.what.op)}, {"elements", r.what.numel}, {"bytes", r.what.nbytes()},
                 {"right", r.wrong == 0},          {"wrong_elements", r.wrong}};
    if (r.wrong > 0) json["problem"] = r.problem;
    if (r.work.launches > 0) {
      json["launches"] = r.work.launches;
      json["read_bytes"] = r.work.read_nbytes;
      json["written_bytes"] = r.work.written_nbytes;
    }
    if (r.timing) {
      json["median_seconds"] = r.timing->median;
      json["min_seconds"] = r.timing->min;
      json["max_seconds"] = r.timing->max;
      json["spread"] = r.timing->spread;
      json["repeats"] = r.timing->repeats;
      json["calls_per_repeat"] = r.timing->calls;
      json["algorithm_bytes_per_second"] = r.algorithm_bytes_per_second();
      json["bus_bytes_per_second"] = r.bus_bytes_per_second();
    }
    list.push_back(std::move(json));
  }
  return {{"benchmark", "all-reduce"}, {"machine", machine}, {"timed", timed}, {"results", std::move(list)}};
}

std::string all_reduce_csv(const std::vector<AllReduceResult>& results) {
  std::string text =
      "backend,ranks,dtype,op,elements,bytes,right,wrong_elements,median_seconds,min_seconds,max_seconds,spread,"
      "repeats,"
      "calls_per_repeat,algorithm_bytes_per_second,bus_bytes_per_second\n";
  for (const AllReduceResult& r : results) {
    text += fmt::format("{},{},{},{},{},{},{},{},", r.what.backend, r.what.ranks, name_of(r.what.dtype),
                        comm::name_of(r.what.op), r.what.numel, r.what.nbytes(), r.wrong == 0, r.wrong);
    if (!r.timing) {
      text += ",,,,,,,\n";
      continue;
    }
    const Timing& t = *r.timing;
    text += fmt::format("{:.9g},{:.9g},{:.9g},{:.4g},{},{},{:.6g},{:.6g}\n", t.median, t.min, t.max, t.spread,
                        t.repeats, t.calls, r.algorithm_bytes_per_second(), r.bus_bytes_per_second());
  }
  return text;
}

NamedSeconds all_reduce_seconds(const std::vector<AllReduceResult>& results) {
  NamedSeconds seconds;
  for (const AllReduceResult& r : results) {
    if (!r.timing) continue;
    seconds.emplace_back(
        key_of(r.what.backend, r.what.ranks, name_of(r.what.dtype), comm::name_of(r.what.op), r.what.nbytes()),
        r.timing->min);
  }
  return seconds;
}

NamedSeconds read_all_reduce_seconds(const Json& report) {
  NamedSeconds seconds;
  for (const Json& r : report.at("results")) {
    const std::string key = key_of(r.at("backend"), r.at("ranks"), r.at("dtype"), r.at("op"), r.at("bytes"));
    if (r.contains("min_seconds")) seconds.emplace_back(key, r.at("min_seconds"));
  }
  return seconds;
}

}  // namespace heddle::tools::bench
