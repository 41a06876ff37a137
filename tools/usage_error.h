// The exception for wrong use of the program: main prints it and exits with 2.
#pragma once

#include <string>

#include "engine/core/error.h"

namespace heddle::tools {

// Flags, values or combinations of them that the program does not accept. Nothing was changed.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message) {}
};

}  // namespace heddle::tools
