// The end of a message about a mistyped flag or value.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/core/text.h"

namespace heddle::tools {

// "; did you mean --batch-size?", or nothing if no known name is close to `name` or begins with it.
std::string did_you_mean(std::string_view name, std::span<const std::string> known, std::string_view prefix = {});

}  // namespace heddle::tools
