// What every benchmark's report says of the machine and the program.
#pragma once

#include <string>
#include <vector>

#include "tools/json.h"
#include "tools/runtime.h"

namespace heddle::tools::bench {

// Names and versions, in the order in which they are shown: program, compiler, device, backend, libraries, threads,
// host.
Json describe_machine(const Runtime& runtime);
// A line each.
std::vector<std::string> machine_lines(const Json& machine);

}  // namespace heddle::tools::bench
