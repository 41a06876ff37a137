// The benchmarks of `heddle bench` that are not of single kernels: each has flags of its own.
#pragma once

#include "tools/command.h"

namespace heddle::tools {

// Each returns the exit code. Throws: UsageError, Error.
int run_bench_all_reduce(CommandContext& context);
int run_bench_scaling(CommandContext& context);

}  // namespace heddle::tools
