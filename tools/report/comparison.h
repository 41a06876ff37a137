// The part of a report that sets runs side by side.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_data.h"

namespace heddle::tools::report {

// A name for each run: its folder's, or where two are equal its path.
std::vector<std::string> names_of(const std::vector<RunData>& runs);

// A row of results for each run, mean and spread of runs that differ in nothing but their seed, and the settings that
// are not the same in all runs.
std::string comparison(const std::vector<RunData>& runs, const std::vector<std::string>& names);

}  // namespace heddle::tools::report
