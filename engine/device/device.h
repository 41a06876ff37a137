// Which piece of hardware a tensor lives on.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "../core/error.h"

namespace heddle {

enum class DeviceType : std::uint8_t { cpu, cuda };

// A device: the CPU (index 0) or the index-th visible GPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  static constexpr Device cpu() noexcept { return {}; }
  static constexpr Device cuda(int index) noexcept { return {DeviceType::cuda, index}; }
  bool is_cpu() const noexcept { return type == DeviceType::cpu; }
  // "cpu", "cuda:1"
  std::string to_string() const;
  friend bool operator==(const Device&, const Device&) = default;
};

std::ostream& operator<<(std::ostream& out, const Device& device);

// How long a piece of device memory will be used, as far as its user knows. Of no consequence but for its place: see
// caching_allocator.h.
enum class Lifetime : std::uint8_t {
  step,  // made and freed by each step, or made before the first one
  kept   // made inside a step and kept for later ones: caches
};

// An ordered queue of work on a device. The CPU runs everything at the call: its stream is {cpu, nullptr}.
struct Stream {
  Device device;
  void* handle = nullptr;
  friend bool operator==(const Stream&, const Stream&) = default;
};

}  // namespace heddle
