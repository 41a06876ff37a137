// The results of `heddle bench scaling` for people (lines), for programs (JSON; tools/scaling_model.py reads it), and
// against an earlier run.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/baseline.h"
#include "tools/bench/scaling.h"

namespace heddle::tools::bench {

std::vector<std::string> scaling_lines(const ScalingOptions& options, const ScalingReport& report);
Json scaling_json(const Json& machine, const ScalingOptions& options, const ScalingReport& report);
// The fastest round of each case by its name, of this run and of an earlier report.
NamedSeconds scaling_seconds(const ScalingReport& report);
NamedSeconds read_scaling_seconds(const Json& report);

}  // namespace heddle::tools::bench
