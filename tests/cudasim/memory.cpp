// Device and pinned memory; see the header.
#include "tests/cudasim/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>

#include "tests/cudasim/fiber.h"
#ifdef CUDASIM_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace cudasim {
namespace {

constexpr std::size_t kPage = 4096;
// Between two allocations.
constexpr std::size_t kGuard = std::size_t{64} << 10;
constexpr std::size_t kAlignment = 256;
constexpr unsigned char kFresh = 0xff;
// Addresses that one device can give out in the life of the process.
#ifdef CUDASIM_TSAN
constexpr std::size_t kHeapNbytes = std::size_t{8} << 30;
#else
constexpr std::size_t kHeapNbytes = std::size_t{128} << 30;
#endif
constexpr std::size_t kAllHeapsNbytes = kHeapNbytes * kMaxDevices;
// Larger allocations are mapped from a file of fresh bytes, so that untouched pages cost nothing.
constexpr std::size_t kTemplateNbytes = std::size_t{4} << 20;
constexpr std::size_t kRememberedFrees = 4096;

struct Heap {
  std::size_t next = 0;
  std::size_t used = 0;
};

struct State {
  // Device addresses; the data lies kAllHeapsNbytes higher.
  std::uintptr_t base = 0;
  Heap heaps[kMaxDevices];
  std::map<std::uintptr_t, Allocation> live;
  std::deque<Allocation> freed;
  std::uint64_t next_number = 1;
  std::size_t total = std::size_t{16} << 30;
  int template_file = -1;
};

// Lives as long as the process: the fault handler may run at any time.
State& state() {
  static State* instance = new State;
  return *instance;
}

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

void* map_pages(void* at, std::size_t nbytes, int protection, int flags) {
  void* pages = mmap(at, nbytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (pages == MAP_FAILED) die("no address space left for %zu bytes of simulated memory", nbytes);
  return pages;
}

void reserve() {
  if (state().base != 0) return;
  state().base = reinterpret_cast<std::uintptr_t>(map_pages(nullptr, 2 * kAllHeapsNbytes, PROT_NONE, 0));
}

int template_file() {
  if (state().template_file < 0) {
    const int file = memfd_create("cudasim", MFD_CLOEXEC);
    const std::string bytes(kTemplateNbytes, static_cast<char>(kFresh));
    if (file < 0 || write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
      die("cannot make a file of fresh memory");
    }
    state().template_file = file;
  }
  return state().template_file;
}

// Opens pages that are reserved, with all bits set.
void open_pages(std::uintptr_t begin, std::size_t nbytes) {
  while (nbytes >= kTemplateNbytes) {
    if (mmap(reinterpret_cast<void*>(begin), kTemplateNbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
             template_file(), 0) == MAP_FAILED) {
      die("cannot map simulated memory");
    }
    begin += kTemplateNbytes;
    nbytes -= kTemplateNbytes;
  }
  if (nbytes == 0) return;
  mprotect(reinterpret_cast<void*>(begin), nbytes, PROT_READ | PROT_WRITE);
  std::memset(reinterpret_cast<void*>(begin), kFresh, nbytes);
}

void close_pages(std::uintptr_t begin, std::size_t nbytes) {
  map_pages(reinterpret_cast<void*>(begin), nbytes, PROT_NONE, MAP_FIXED);
}

// Lets AddressSanitizer report an access to the bytes between the data and the guard pages.
void poison_slack([[maybe_unused]] std::uintptr_t region, [[maybe_unused]] std::size_t region_nbytes,
                  [[maybe_unused]] std::uintptr_t data, [[maybe_unused]] std::size_t nbytes) {
#ifdef CUDASIM_ASAN
  __asan_poison_memory_region(reinterpret_cast<void*>(region), data - region);
  __asan_poison_memory_region(reinterpret_cast<void*>(data + nbytes), region + region_nbytes - data - nbytes);
#endif
}

void unpoison([[maybe_unused]] std::uintptr_t region, [[maybe_unused]] std::size_t region_nbytes) {
#ifdef CUDASIM_ASAN
  __asan_unpoison_memory_region(reinterpret_cast<void*>(region), region_nbytes);
#endif
}

#ifndef CUDASIM_ASAN
// First byte of [begin, end) that is not fresh, or end.
std::uintptr_t first_changed(std::uintptr_t begin, std::uintptr_t end) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(begin);
  std::size_t i = 0;
  while (i < end - begin && bytes[i] == kFresh) ++i;
  return begin + i;
}
#endif

const Allocation* remember(Allocation allocation) {
  allocation.number = state().next_number++;
  return &state().live.emplace(allocation.address, allocation).first->second;
}

// Where data of this size lies inside pages that begin at `region`.
std::uintptr_t place(std::uintptr_t region, std::size_t region_nbytes, std::size_t nbytes, std::size_t residue) {
  const std::uintptr_t last = region + region_nbytes - nbytes;
  return last - (last + kAlignment - residue) % kAlignment;
}

}  // namespace

std::uintptr_t Allocation::data() const { return device == kHost ? address : data_address(address); }

GuardedPages map_guarded(std::size_t nbytes, std::size_t residue) {
  GuardedPages pages;
  pages.region_nbytes = round_up(nbytes + kAlignment, kPage);
  pages.region = reinterpret_cast<std::uintptr_t>(map_pages(nullptr, pages.region_nbytes + 2 * kPage, PROT_NONE, 0));
  pages.region += kPage;
  open_pages(pages.region, pages.region_nbytes);
  pages.data = place(pages.region, pages.region_nbytes, nbytes, residue);
  poison_slack(pages.region, pages.region_nbytes, pages.data, nbytes);
  return pages;
}

void unmap_guarded(const GuardedPages& pages) {
  unpoison(pages.region, pages.region_nbytes);
  munmap(reinterpret_cast<void*>(pages.region - kPage), pages.region_nbytes + 2 * kPage);
}

const Allocation* allocate_device_memory(int device, std::size_t nbytes, const char* function, void* pool) {
  reserve();
  Heap& heap = state().heaps[device];
  const std::size_t pages = round_up(nbytes, kPage);
  if (nbytes > state().total - std::min(state().total, heap.used) || pages + 2 * kGuard > kHeapNbytes - heap.next) {
    return nullptr;
  }
  Allocation allocation;
  allocation.nbytes = nbytes;
  allocation.device = device;
  allocation.function = function;
  allocation.pool = pool;
  const std::uintptr_t region = state().base + kHeapNbytes * static_cast<std::size_t>(device) + heap.next + kGuard;
  heap.next += pages + kGuard;
  heap.used += round_up(nbytes, kAlignment);
  allocation.region = data_address(region);
  allocation.region_nbytes = pages;
  allocation.address = place(region, pages, nbytes, 0);
  open_pages(allocation.region, pages);
  poison_slack(allocation.region, pages, allocation.data(), nbytes);
  return remember(allocation);
}

const Allocation* allocate_host_memory(std::size_t nbytes, const char* function, unsigned flags) {
  const GuardedPages pages = map_guarded(nbytes, 0);
  Allocation allocation;
  allocation.nbytes = nbytes;
  allocation.function = function;
  allocation.flags = flags;
  allocation.address = pages.data;
  allocation.region = pages.region;
  allocation.region_nbytes = pages.region_nbytes;
  return remember(allocation);
}

const Allocation* register_host_memory(void* data, std::size_t nbytes, unsigned flags) {
  Allocation allocation;
  allocation.nbytes = nbytes;
  allocation.function = "cudaHostRegister";
  allocation.flags = flags;
  allocation.address = reinterpret_cast<std::uintptr_t>(data);
  return remember(allocation);
}

void free_memory(const Allocation* allocation) {
  if (const std::string text = overrun(*allocation); !text.empty()) die("%s", text.c_str());
  const Allocation copy = *allocation;
  state().live.erase(copy.address);
  if (copy.device == kHost) {
    if (copy.region != 0) unmap_guarded({copy.region, copy.region_nbytes, copy.address});
    return;
  }
  state().heaps[copy.device].used -= round_up(copy.nbytes, kAlignment);
  unpoison(copy.region, copy.region_nbytes);
  close_pages(copy.region, copy.region_nbytes);
  state().freed.push_back(copy);
  if (state().freed.size() > kRememberedFrees) state().freed.pop_front();
}

void free_all_memory() {
  while (!state().live.empty()) free_memory(&state().live.begin()->second);
}

const Allocation* find_allocation(const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  auto next = state().live.upper_bound(value);
  if (next == state().live.begin()) return nullptr;
  const Allocation& candidate = std::prev(next)->second;
  return candidate.contains(value, 1) ? &candidate : nullptr;
}

const std::map<std::uintptr_t, Allocation>& live_allocations() { return state().live; }

int device_of_address(const void* address) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (state().base == 0 || value < state().base || value >= state().base + kAllHeapsNbytes) return -1;
  return static_cast<int>((value - state().base) / kHeapNbytes);
}

std::uintptr_t data_address(std::uintptr_t address) { return address + kAllHeapsNbytes; }

std::size_t device_memory_total() { return state().total; }
std::size_t device_memory_used(int device) { return state().heaps[device].used; }
void set_device_memory_total(std::size_t nbytes) { state().total = nbytes; }

std::string overrun([[maybe_unused]] const GuardedPages& pages, [[maybe_unused]] std::size_t nbytes) {
#ifndef CUDASIM_ASAN
  const std::uintptr_t end = pages.region + pages.region_nbytes;
  std::uintptr_t changed = first_changed(pages.data + nbytes, end);
  if (changed == end) {
    changed = first_changed(pages.region, pages.data);
    if (changed == pages.data) return {};
  }
  std::memset(reinterpret_cast<void*>(pages.region), kFresh, pages.data - pages.region);
  std::memset(reinterpret_cast<void*>(pages.data + nbytes), kFresh, end - pages.data - nbytes);
  return "overrun: byte " + std::to_string(static_cast<std::ptrdiff_t>(changed - pages.data)) + " was written, of " +
         std::to_string(nbytes);
#else
  return {};
#endif
}

std::string overrun(const Allocation& allocation) {
  if (allocation.region == 0) return {};
  const std::string text = overrun({allocation.region, allocation.region_nbytes, allocation.data()}, allocation.nbytes);
  if (text.empty()) return {};
  return text + " of allocation #" + std::to_string(allocation.number) + " (" + allocation.function + ", device " +
         std::to_string(allocation.device) + ")";
}

void make_fresh(const Allocation& allocation) {
  std::memset(reinterpret_cast<void*>(allocation.data()), kFresh, allocation.nbytes);
}

bool describe_address(std::uintptr_t address, char* text, std::size_t text_nbytes) {
  const State& all = state();
  if (all.base == 0 || address < all.base || address >= all.base + 2 * kAllHeapsNbytes) return false;
  const bool is_data = address >= all.base + kAllHeapsNbytes;
  const std::uintptr_t alias = is_data ? address - kAllHeapsNbytes : address;
  const Allocation* nearest = nullptr;
  const char* kind = "live";
  const auto consider = [&](const Allocation& candidate, const char* what) {
    if (candidate.device == kHost || alias + kGuard < candidate.address) return;
    if (alias > candidate.address + candidate.nbytes + kGuard) return;
    if (nearest != nullptr && (nearest->contains(alias, 1) || !candidate.contains(alias, 1))) return;
    nearest = &candidate;
    kind = what;
  };
  for (const auto& [begin, candidate] : all.live) consider(candidate, "live");
  for (const Allocation& candidate : all.freed) consider(candidate, "freed");
  if (nearest == nullptr) {
    std::snprintf(text, text_nbytes, "address %p in the range of device %d, in no allocation",
                  reinterpret_cast<void*>(alias), device_of_address(reinterpret_cast<void*>(alias)));
    return true;
  }
  std::snprintf(text, text_nbytes, "%s %p, byte %td of %s allocation #%llu (%s, %zu bytes, device %d)",
                is_data ? "address" : "untranslated address", reinterpret_cast<void*>(alias),
                static_cast<std::ptrdiff_t>(alias - nearest->address), kind,
                static_cast<unsigned long long>(nearest->number), nearest->function, nearest->nbytes, nearest->device);
  return true;
}

}  // namespace cudasim
