// Exception types and the check macro of the whole engine. Everybody uses it; it knows nothing of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace heddle {

// Base of all exceptions that Heddle throws.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  ~Error() override;
};

// A value, shape or option that the called function cannot work with; nothing was changed.
class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& message) : Error(message) {}
  ~InvalidArgument() override;
};

// A feature that this build, device or data type does not offer.
class NotSupported : public Error {
 public:
  explicit NotSupported(const std::string& message) : Error(message) {}
  ~NotSupported() override;
};

// A call into a device or maths library failed.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(message) {}
  ~DeviceError() override;
};

// Device memory ran out. The engine is usable afterwards: a smaller request may succeed.
class OutOfMemory : public DeviceError {
 public:
  OutOfMemory(const std::string& message, std::uint64_t requested_nbytes)
      : DeviceError(message), requested_nbytes_(requested_nbytes) {}
  ~OutOfMemory() override;
  std::uint64_t requested_nbytes() const noexcept { return requested_nbytes_; }

 private:
  std::uint64_t requested_nbytes_;
};

// A peer rank is lost, late or disagrees.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message) : Error(message) {}
  ~CommError() override;
};

// A file could not be read or written. The message holds the path and, where known, the byte offset.
class IoError : public Error {
 public:
  IoError(std::string path, const std::string& reason) : Error(path + ": " + reason), path_(std::move(path)) {}
  ~IoError() override;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// All arguments written one after the other with operator<<.
template <class... Parts>
std::string join_text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

namespace detail {
[[noreturn]] void throw_invalid_argument(const std::string& message);
}  // namespace detail

}  // namespace heddle

// Always on. Throws InvalidArgument with the parts joined: HEDDLE_CHECK(a == b, "op: a is ", a, ", b is ", b).
#define HEDDLE_CHECK(condition, ...)                                              \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::heddle::detail::throw_invalid_argument(::heddle::join_text(__VA_ARGS__)); \
  } while (false)
