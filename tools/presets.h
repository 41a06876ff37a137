// Named sets of settings for `--preset`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/settings.h"

namespace heddle::tools {

std::vector<std::string> preset_names();

// Sets what the preset prescribes for settings.model. Throws: UsageError for an unknown preset (with the nearest name),
// or one that the model does not have.
void apply_preset(Settings& settings, std::string_view preset);

}  // namespace heddle::tools
