// From the flags of `heddle train` to what is to be done.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/command_line.h"
#include "tools/run_folder.h"
#include "tools/seed_set.h"
#include "tools/settings.h"

namespace heddle::tools {

struct TrainOptions {
  Settings settings;
  std::string preset;                // "" if none was asked for
  std::string out;                   // "" = make a name
  std::string store;                 // where ranks in processes meet; "" = where the launcher says
  std::optional<RunFolder> resumed;  // the run to continue
  std::vector<std::string> notices;  // one line each, for the user
  std::string rank_device;           // of this process among others, once they are joined; "" = as settings.device says
  bool finished = false;             // set by the training: nothing is left for --resume
};

CommandSpec train_spec();
// The settings as flags, in groups; --config and --preset.
std::vector<FlagSpec> setting_flags();

// A new run: defaults, then --config, then --preset, then flags; later ones win. With --resume the settings of the run,
// then flags, which must not contradict it. Checks everything that can be checked without data.
// reports: this rank writes into the run's folder. Throws: UsageError, IoError.
TrainOptions read_train_options(const ParsedArguments& arguments, bool reports = true);

// The run of a set with this seed: to be continued if it was begun, else a new one in its folder, with the settings of
// the set. Flags that contradict them are refused. Throws: UsageError, IoError.
TrainOptions read_seed_options(const ParsedArguments& arguments, const SeedSet& set, std::int64_t seed);

}  // namespace heddle::tools
