// A whole run of `heddle bench all-reduce`: every case in turn, printed as it is done, then files and the verdict.
#pragma once

#include <vector>

#include "tools/bench/all_reduce.h"
#include "tools/bench/arguments.h"
#include "tools/bench/rank_host.h"
#include "tools/console.h"

namespace heddle::tools::bench {

// repeats 0: check only, as on a simulated device, whose work is counted. Returns the exit code, on all processes:
// failed if an element is wrong, or on the one that reports if a case is slower than the baseline allows. Throws:
// UsageError, IoError, CommError.
int run_all_reduce(const std::vector<AllReduceCase>& cases, const RankHost& host, const Runtime& runtime, int repeats,
                   const ReportFiles& files, Console& out, Console& err);

}  // namespace heddle::tools::bench
