// Addresses of kernels; see the header.
#include "tests/cudasim/address_map.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/cudasim/device_fault.h"
#include "tests/cudasim/machine.h"

namespace cudasim {
namespace {

// The map of the launch that the calling thread runs, for reports.
thread_local const DeclaredMap* t_running_map = nullptr;

[[noreturn]] void refuse_host_pointer(const char* kernel, const void* address) {
  char text[256];
  std::snprintf(text, sizeof(text), "kernel %s was given %p, which is ordinary host memory", kernel, address);
  set_last_report(text);
  throw DeviceFault{};
}

}  // namespace

void* DeviceMap::pointer(void* address) {
  if (address == nullptr) return nullptr;
  if (!is_device_pointer(address)) {
    if (find_allocation(address) == nullptr) refuse_host_pointer(kernel_, address);
    return address;
  }
  return reinterpret_cast<void*>(word(reinterpret_cast<std::uintptr_t>(address)));
}

std::uintptr_t DeviceMap::word(std::uintptr_t value) {
  const void* address = reinterpret_cast<const void*>(value);
  if (!is_device_pointer(address)) return value;
  const Allocation* allocation = find_allocation(address);
  if (allocation == nullptr) return data_address(value);
  if (!reaches(device_, allocation->device)) return value;
  touched_.push_back(allocation);
  return data_address(value);
}

std::string DeviceMap::overrun() const {
  for (const Allocation* allocation : touched_) {
    if (std::string text = cudasim::overrun(*allocation); !text.empty()) return text;
  }
  return {};
}

DeclaredMap::DeclaredMap(const std::vector<Access>& accesses, const char* kernel) : kernel_(kernel) {
  std::vector<Range> sorted;
  for (const Access& access : accesses) {
    if (access.nbytes == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(access.data);
    sorted.push_back({begin, begin + access.nbytes, access.write, 0, {}});
  }
  std::sort(sorted.begin(), sorted.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& range : sorted) {
    if (!ranges_.empty() && range.begin < ranges_.back().end) {
      ranges_.back().end = std::max(ranges_.back().end, range.end);
      ranges_.back().write = ranges_.back().write || range.write;
    } else {
      ranges_.push_back(range);
    }
  }
  // All are checked before any is mapped, so that nothing is left behind.
  for (Range& range : ranges_) {
    const Allocation* allocation = find_allocation(reinterpret_cast<void*>(range.begin));
    if (allocation == nullptr || !allocation->contains(range.begin, range.end - range.begin)) {
      char where[256] = "no device memory";
      describe_address(range.begin, where, sizeof(where));
      char text[512];
      std::snprintf(text, sizeof(text), "kernel %s declared %zu bytes that are in no live allocation, at %s", kernel,
                    static_cast<std::size_t>(range.end - range.begin), where);
      set_last_report(text);
      throw DeviceFault{};
    }
    range.data = allocation->data() + (range.begin - allocation->address);
  }
  for (Range& range : ranges_) range.pages = map_guarded(range.end - range.begin, range.begin % 256);
  for (const Access& access : accesses) {
    if (access.write || access.nbytes == 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(access.data);
    const Range& range = *find(begin);
    std::memcpy(reinterpret_cast<void*>(range.pages.data + (begin - range.begin)),
                reinterpret_cast<void*>(range.data + (begin - range.begin)), access.nbytes);
  }
  for (const Range& range : ranges_) {
    if (!range.write) mprotect(reinterpret_cast<void*>(range.pages.region), range.pages.region_nbytes, PROT_READ);
  }
  t_running_map = this;
}

DeclaredMap::~DeclaredMap() {
  t_running_map = nullptr;
  for (const Range& range : ranges_) {
    if (range.pages.region != 0) unmap_guarded(range.pages);
  }
}

const DeclaredMap::Range* DeclaredMap::find(std::uintptr_t address) const {
  for (const Range& range : ranges_) {
    if (address >= range.begin && address < range.end) return &range;
  }
  return nullptr;
}

void* DeclaredMap::pointer(void* address) {
  if (address == nullptr) return nullptr;
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (const Range* range = find(value)) return reinterpret_cast<void*>(range->pages.data + (value - range->begin));
  if (!is_device_pointer(address) && find_allocation(address) == nullptr) refuse_host_pointer(kernel_, address);
  return address;
}

std::uintptr_t DeclaredMap::word(std::uintptr_t value) {
  const Range* range = find(value);
  return range == nullptr ? value : range->pages.data + (value - range->begin);
}

bool DeclaredMap::describe(std::uintptr_t address, char* text, std::size_t text_nbytes) {
  constexpr std::uintptr_t kGuard = 4096;
  if (t_running_map == nullptr) return false;
  for (const Range& range : t_running_map->ranges_) {
    if (address < range.pages.region - kGuard || address >= range.pages.region + range.pages.region_nbytes + kGuard) {
      continue;
    }
    std::snprintf(text, text_nbytes, "byte %td of a declared range of %zu bytes%s",
                  static_cast<std::ptrdiff_t>(address - range.pages.data),
                  static_cast<std::size_t>(range.end - range.begin), range.write ? "" : " that is only read");
    return true;
  }
  return false;
}

std::string DeclaredMap::finish() {
  std::string text;
  for (const Range& range : ranges_) {
    if (!range.write) continue;
    const std::size_t nbytes = range.end - range.begin;
    std::memcpy(reinterpret_cast<void*>(range.data), reinterpret_cast<void*>(range.pages.data), nbytes);
    if (text.empty()) text = cudasim::overrun(range.pages, nbytes);
  }
  return text;
}

}  // namespace cudasim
