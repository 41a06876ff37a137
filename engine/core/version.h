// The version of Heddle, as macros. The build checks that it equals the VERSION file.
#pragma once

#define HEDDLE_VERSION_MAJOR 0
#define HEDDLE_VERSION_MINOR 1
#define HEDDLE_VERSION_PATCH 0
#define HEDDLE_VERSION_STRING "0.1.0"

namespace heddle {

// Version of the library that is linked, which may differ from HEDDLE_VERSION_STRING of the headers.
const char* version() noexcept;

}  // namespace heddle
