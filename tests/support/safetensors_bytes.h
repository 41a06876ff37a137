// Builds safetensors files byte by byte, right and wrong ones.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::test {

inline std::string little_endian64(std::uint64_t value) {
  std::string text(8, '\0');
  for (char& c : text) {
    c = static_cast<char>(value & 255);
    value >>= 8;
  }
  return text;
}

inline std::string safetensors_bytes(const std::string& json, const std::string& data) {
  return little_endian64(json.size()) + json + data;
}

}  // namespace heddle::test
