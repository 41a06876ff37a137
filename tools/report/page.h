// The page of `heddle report`: one HTML text that needs nothing else. Knows nothing of files.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_data.h"

namespace heddle::tools::report {

// How every page begins, by which an older one is known.
inline constexpr const char* kPageBegin = "<!DOCTYPE html>\n<!-- heddle report -->\n";

// Curves of all runs, a table that compares them (of two and more), and of each run its confusion matrix, its worst
// misclassified images, its settings and its environment. All texts of the runs are escaped. At least one run.
std::string make_page(const std::vector<RunData>& runs);

}  // namespace heddle::tools::report
