#include "engine/core/error.h"

#include "engine/core/version.h"

namespace heddle {

// Destructors are defined here so that each exception type has one home and is caught across libraries.
Error::~Error() = default;
InvalidArgument::~InvalidArgument() = default;
NotSupported::~NotSupported() = default;
DeviceError::~DeviceError() = default;
OutOfMemory::~OutOfMemory() = default;
CommError::~CommError() = default;
IoError::~IoError() = default;

const char* version() noexcept { return HEDDLE_VERSION_STRING; }

namespace detail {
void throw_invalid_argument(const std::string& message) { throw InvalidArgument(message); }
}  // namespace detail

}  // namespace heddle
