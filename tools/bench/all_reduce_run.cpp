#include "tools/bench/all_reduce_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/core/file.h"
#include "tools/bench/all_reduce_report.h"
#include "tools/bench/machine.h"
#include "tools/command.h"
#include "tools/config_file.h"
#include "tools/rank_stream.h"

namespace heddle::tools::bench {
namespace {

AllReduceResult run_case(const AllReduceCase& what, const RankHost& host, int repeats) {
  AllReduceResult result;
  host.run(what.backend, what.ranks, [&](comm::Communicator& communicator) {
    const Device device = host.device_of(what.backend, communicator.rank());
    const RankStream stream(device, &communicator);
    AllReduceResult of_rank = measure_all_reduce(communicator, what, device, repeats);
    // All ranks have the same. Of threads one may write.
    if (host.are_processes() || communicator.rank() == 0) result = std::move(of_rank);
  });
  return result;
}

}  // namespace

int run_all_reduce(const std::vector<AllReduceCase>& cases, const RankHost& host, const Runtime& runtime, int repeats,
                   const ReportFiles& files, Console& out, Console& err) {
  const bool reports = host.reports();
  const Json baseline = files.baseline.empty() || !reports ? Json() : read_json_file(files.baseline);
  // Times would be those of another processor.
  if (runtime.simulated) repeats = 0;
  const bool timed = repeats > 0;
  const Json machine = describe_machine(runtime);
  const auto print = [&](const std::string& line) {
    if (reports) out.line(line);
  };
  for (const std::string& line : machine_lines(machine)) print(line);
  if (runtime.simulated)
    print("note     a simulated device: results are checked and work is counted, nothing is timed");
  print("");
  print(all_reduce_heading(timed));
  std::vector<AllReduceResult> results;
  for (const AllReduceCase& what : cases) {
    results.push_back(run_case(what, host, repeats));
    print(all_reduce_line(results.back()));
  }
  const auto wrong =
      std::count_if(results.begin(), results.end(), [](const AllReduceResult& r) { return r.wrong > 0; });
  if (!reports) return wrong == 0 ? exit_code::kDone : exit_code::kFailed;
  if (!files.json.empty()) write_file_atomically(files.json, all_reduce_json(machine, results, timed).dump(2) + "\n");
  if (!files.csv.empty()) write_file_atomically(files.csv, all_reduce_csv(results));
  bool fast_enough = true;
  if (!files.baseline.empty()) {
    const Comparison comparison =
        compare_times(baseline, read_all_reduce_seconds, machine, all_reduce_seconds(results), files.max_regression);
    fast_enough = report_comparison(comparison, "cases", files.baseline, files.max_regression, out);
  }
  if (wrong > 0) err.line(fmt::format("heddle: {} of {} cases have wrong elements", wrong, results.size()));
  return wrong == 0 && fast_enough ? exit_code::kDone : exit_code::kFailed;
}

}  // namespace heddle::tools::bench
