// The parts of a report that are about one run.
#pragma once

#include <string>

#include "tools/report/run_data.h"

namespace heddle::tools::report {

// What a reader looks for first: what was trained, and how good it is; warnings about the run's files.
std::string summary(const RunData& run);

// Confusion matrix, misclassified images, settings, environment.
std::string run_section(const RunData& run);

}  // namespace heddle::tools::report
