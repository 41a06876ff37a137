// The memory of the simulated devices, and pinned host memory. Used by the allocation functions, the launch functions
// and the handler of memory faults. It must not know streams.
//
// A device pointer is an address in a range that is never accessible: host code that touches it faults, also while a
// kernel runs in another thread. The data lies a fixed distance higher, and only the simulator adds that distance, to
// the arguments of a kernel and in host_view(). Every allocation ends at (or less than 256 bytes before) a guard page
// and starts after one, no address is used twice, and fresh memory has all bits set, which is NaN for floats. The bytes
// between an allocation and its guard pages keep that value; a changed one is an overrun. Under AddressSanitizer they
// are poisoned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/cudasim/internal.h"

namespace cudasim {

constexpr int kMaxDevices = 8;
constexpr int kHost = -1;

struct Allocation {
  // As the program holds it; for pinned host memory this is the data itself.
  std::uintptr_t address = 0;
  std::size_t nbytes = 0;
  // A device, or kHost for pinned host memory.
  int device = kHost;
  // Counts allocations since the program started, for reports.
  std::uint64_t number = 0;
  // The function that made it, and its flags.
  const char* function = "";
  unsigned flags = 0;
  // The memory pool that it is from, nullptr for cudaMalloc.
  void* pool = nullptr;
  // Freed in stream order, which has not been reached yet.
  mutable bool free_queued = false;
  // The pages that hold it, where the data is.
  std::uintptr_t region = 0;
  std::size_t region_nbytes = 0;

  std::uintptr_t data() const;
  bool contains(std::uintptr_t begin, std::size_t size) const {
    return begin >= address && begin - address <= nbytes && size <= nbytes - (begin - address);
  }
};

// A block of pages between two guard pages with `nbytes` of data that end near the upper one and start at an address
// that is `residue` modulo 256. All of it has all bits set. Returns the address of the data.
struct GuardedPages {
  std::uintptr_t region = 0;
  std::size_t region_nbytes = 0;
  std::uintptr_t data = 0;
};
GuardedPages map_guarded(std::size_t nbytes, std::size_t residue);
void unmap_guarded(const GuardedPages& pages);

// Returns nullptr if the device has not enough memory left.
const Allocation* allocate_device_memory(int device, std::size_t nbytes, const char* function, void* pool);
const Allocation* allocate_host_memory(std::size_t nbytes, const char* function, unsigned flags);
// Makes ordinary host memory known as pinned.
const Allocation* register_host_memory(void* data, std::size_t nbytes, unsigned flags);
// Checks the bytes around it, then makes its address unusable.
void free_memory(const Allocation* allocation);
// Drops everything.
void free_all_memory();

// The live allocation that holds the address, nullptr if there is none.
const Allocation* find_allocation(const void* address);
const std::map<std::uintptr_t, Allocation>& live_allocations();
// The device whose range of addresses holds the pointer, -1 if it is none.
int device_of_address(const void* address);
// Where the data of a device address lies.
std::uintptr_t data_address(std::uintptr_t address);

std::size_t device_memory_total();
std::size_t device_memory_used(int device);
void set_device_memory_total(std::size_t nbytes);

// Empty, or what was written outside the allocation (outside the data between guarded pages); found only once.
std::string overrun(const Allocation& allocation);
std::string overrun(const GuardedPages& pages, std::size_t nbytes);
// Sets all bits of a range of an allocation's data.
void make_fresh(const Allocation& allocation);

// Writes into `text` what lies at an address (a device address or where its data is): for reports, also from the
// handler of memory faults. Returns false if it is no device memory.
bool describe_address(std::uintptr_t address, char* text, std::size_t text_nbytes);
// Makes sure that memory faults are answered by the simulator (tests' frameworks install own handlers).
void install_fault_handler();
// What the last report said, for tests.
void set_last_report(const std::string& text);

}  // namespace cudasim
