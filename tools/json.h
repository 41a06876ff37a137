// The JSON type of the program: keys stay in the order in which they were written.
#pragma once

#include <nlohmann/json.hpp>

namespace heddle::tools {

using Json = nlohmann::ordered_json;

}  // namespace heddle::tools
