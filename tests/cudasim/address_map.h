// From the addresses that a program holds to those that a kernel may use. Used when a kernel runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/cudasim/memory.h"
#include "tests/cudasim/shim/kernel_call.h"

namespace cudasim {

// All memory that a device can reach. Other addresses stay as they are and fault when they are used.
class DeviceMap final : public AddressMap {
 public:
  DeviceMap(int device, const char* kernel) : device_(device), kernel_(kernel) {}
  // Throws: DeviceFault if the address is ordinary host memory, which a device cannot reach.
  void* pointer(void* address) override;
  std::uintptr_t word(std::uintptr_t value) override;
  // Bytes that the kernel wrote next to an allocation that it was given; empty if none.
  std::string overrun() const;

 private:
  int device_;
  const char* kernel_;
  std::vector<const Allocation*> touched_;
};

// Only what a launch declared. Each declared range (overlapping ones together) is copied between guard pages of its
// own for the time of the launch, so that not a byte beside it can be used; the copy of a range that is only read is
// write-protected, and that of a range that is only written starts with all bits set, so that it shows when the kernel
// reads it or leaves a part of it out.
class DeclaredMap final : public AddressMap {
 public:
  // Throws: DeviceFault if a declared range is not in live memory.
  DeclaredMap(const std::vector<Access>& accesses, const char* kernel);
  ~DeclaredMap() override;
  DeclaredMap(const DeclaredMap&) = delete;
  DeclaredMap& operator=(const DeclaredMap&) = delete;

  void* pointer(void* address) override;
  std::uintptr_t word(std::uintptr_t value) override;
  // Brings what was written to where it belongs. Returns what was written beside a range, or nothing.
  std::string finish();
  // Writes into `text` which declared range of the running launch holds the address of a copy, or lies next to it.
  // Returns false if none does. For the handler of memory faults.
  static bool describe(std::uintptr_t address, char* text, std::size_t text_nbytes);

 private:
  struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool write = false;
    // Where the data is outside of the launch.
    std::uintptr_t data = 0;
    GuardedPages pages;
  };
  const Range* find(std::uintptr_t address) const;

  const char* kernel_;
  std::vector<Range> ranges_;
};

}  // namespace cudasim
