#include "engine/device/device.h"

#include <ostream>

namespace heddle {

std::string Device::to_string() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.to_string(); }

}  // namespace heddle
