// The results of `heddle bench all-reduce` for people (lines), for programs (JSON), for spreadsheets (CSV), and against
// an earlier run.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/all_reduce.h"
#include "tools/bench/baseline.h"
#include "tools/json.h"

namespace heddle::tools::bench {

// The line above the results, and a line for each.
std::string all_reduce_heading(bool timed);
std::string all_reduce_line(const AllReduceResult& result);
// The whole report.
Json all_reduce_json(const Json& machine, const std::vector<AllReduceResult>& results, bool timed);
// One line a result, with a header; what was not measured is empty.
std::string all_reduce_csv(const std::vector<AllReduceResult>& results);
// The fastest call of each result by its name, of this run and of an earlier report.
NamedSeconds all_reduce_seconds(const std::vector<AllReduceResult>& results);
NamedSeconds read_all_reduce_seconds(const Json& report);

}  // namespace heddle::tools::bench
