// `heddle train --seeds N`: a run for each seed, one after the other, and mean and spread of what they reach.
#pragma once

#include <functional>

#include "tools/command_line.h"
#include "tools/console.h"
#include "tools/interrupt.h"
#include "tools/seed_set.h"
#include "tools/train_options.h"

namespace heddle::tools {

// The set that the flags ask for: a new one (--seeds), or that of --resume. Throws: UsageError, IoError.
SeedSet open_seed_set(const ParsedArguments& arguments);

// Trains what is left of each run of the set. train_one: trains one run and returns its exit code. A run whose loss is
// not finite is reported and left; a signal or the time limit stops the set. Returns the exit code of the whole.
// Throws: what train_one throws but for that.
int train_seeds(SeedSet& set, const ParsedArguments& arguments, const std::function<int(TrainOptions&)>& train_one,
                Console& out, Console& err);

}  // namespace heddle::tools
