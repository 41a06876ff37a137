// Names of functions, for reports.
#pragma once

#include <string>

namespace cudasim {

// The name of the function at an address as it stands in its source, without parameters; hidden functions too, unless
// their file was stripped. Then, the file and the offset in it.
std::string symbol_name(const void* function);
// The same for a name as compilers write it.
std::string readable_name(const char* mangled);

}  // namespace cudasim
