// Devices, handles, errors of the simulated machine; see the header.
#include "tests/cudasim/machine.h"

#include <cstdlib>
#include <cstring>

#include "tests/cudasim/capture.h"
#include "tests/cudasim/device_limits.h"
#include "tests/cudasim/executor.h"
#include "tests/cudasim/pools.h"

namespace cudasim {
namespace {

struct Machine {
  bool started = false;
  int count = 2;
  int capability = kCapability;
  Device devices[kMaxDevices];
  HandleTable<Stream> streams{0x51};
  HandleTable<Event> events{0x52};
  std::int64_t next_stream_number = 1;
};

Machine& machine() {
  static auto* instance = new Machine;
  return *instance;
}

thread_local int t_device = 0;
thread_local cudaError_t t_last_error = cudaSuccess;

long number_from_environment(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 0) die("%s=%s is no number", name, text);
  return value;
}

void read_environment() {
  Machine& all = machine();
  all.count = static_cast<int>(number_from_environment("CUDASIM_DEVICES", 2));
  if (all.count > kMaxDevices) die("CUDASIM_DEVICES=%d, at most %d are possible", all.count, kMaxDevices);
  all.capability = static_cast<int>(number_from_environment("CUDASIM_CAPABILITY", kCapability));
  Policy fresh;
  fresh.peer_deadline_ms =
      static_cast<int>(number_from_environment("CUDASIM_PEER_DEADLINE_MS", fresh.peer_deadline_ms));
  fresh.nondeterministic_first = number_from_environment("CUDASIM_NONDETERMINISTIC", 0) != 0;
  if (const char* text = std::getenv("CUDASIM_STREAM_ORDER")) {
    if (std::strcmp(text, "lazy") == 0) {
      fresh.stream_order.kind = StreamOrder::lazy;
    } else if (std::strcmp(text, "eager") == 0) {
      fresh.stream_order.kind = StreamOrder::eager;
    } else if (std::strncmp(text, "random:", 7) == 0 && std::atoi(text + 7) > 0) {
      fresh.stream_order.kind = StreamOrder::random;
      fresh.stream_order.seed = static_cast<std::uint32_t>(std::atoi(text + 7));
    } else {
      die("CUDASIM_STREAM_ORDER=%s, expected lazy, eager or random:SEED with a seed from 1", text);
    }
  }
  if (const char* text = std::getenv("CUDASIM_THREAD_ORDER")) {
    if (std::strcmp(text, "forward") == 0) {
      fresh.thread_order = ThreadOrder::forward;
    } else if (std::strcmp(text, "reverse") == 0) {
      fresh.thread_order = ThreadOrder::reverse;
    } else {
      die("CUDASIM_THREAD_ORDER=%s, expected forward or reverse", text);
    }
  }
  fresh.random_state = fresh.stream_order.seed;
  policy() = fresh;
  set_device_memory_total(static_cast<std::size_t>(number_from_environment("CUDASIM_DEVICE_MEMORY_MIB", 16 << 10))
                          << 20);
}

void make_device(int index) {
  Device& fresh = machine().devices[index];
  fresh = Device{};
  fresh.legacy = std::make_shared<Stream>();
  fresh.legacy->device = index;
  prepare_stream(index, 0);
}

}  // namespace

void start_machine() {
  if (machine().started) return;
  machine().started = true;
  read_environment();
  for (int i = 0; i < kMaxDevices; ++i) make_device(i);
}

void reset_device(int index) {
  drop_operations_of(index);
  const auto remove_all = [index](auto& table) {
    std::vector<std::uintptr_t> gone;
    for (const auto& [handle, object] : table.all()) {
      if (object->device == index) gone.push_back(handle);
    }
    for (const std::uintptr_t handle : gone) table.remove(reinterpret_cast<const void*>(handle));
  };
  remove_all(streams());
  remove_all(events());
  std::vector<const Allocation*> gone;
  for (const auto& [address, allocation] : live_allocations()) {
    if (allocation.device == index) gone.push_back(&allocation);
  }
  for (const Allocation* allocation : gone) free_memory(allocation);
  drop_pools_of(index);
  make_device(index);
}

CUDASIM_API void reset() {
  const Lock lock;
  machine().started = false;
  clear_captures();
  clear_last_launched_graph();
  drop_all_operations();
  streams().clear();
  events().clear();
  free_all_memory();
  for (int i = 0; i < kMaxDevices; ++i) drop_pools_of(i);
  clear_failures();
  reset_counters();
  clear_trace();
  clear_handles();
  t_device = 0;
  t_last_error = cudaSuccess;
  start_machine();
}

CUDASIM_API void set_device_count(int count) {
  const Lock lock;
  start_machine();
  if (count < 0 || count > kMaxDevices) die("set_device_count(%d): 0 to %d are possible", count, kMaxDevices);
  machine().count = count;
}

CUDASIM_API void set_capability(int capability) {
  const Lock lock;
  start_machine();
  machine().capability = capability;
}

CUDASIM_API void set_device_memory(std::size_t nbytes) {
  const Lock lock;
  start_machine();
  set_device_memory_total(nbytes);
}

CUDASIM_API void set_stream_order(StreamOrder order) {
  const Lock lock;
  start_machine();
  policy().stream_order = order;
  policy().random_state = order.seed;
}

CUDASIM_API void set_nondeterministic_first(bool on) {
  const Lock lock;
  start_machine();
  policy().nondeterministic_first = on;
}

CUDASIM_API void set_computing(bool on) {
  const Lock lock;
  start_machine();
  policy().computing = on;
}

CUDASIM_API void set_thread_order(ThreadOrder order) {
  const Lock lock;
  start_machine();
  policy().thread_order = order;
}

CUDASIM_API void set_peer_deadline_ms(int milliseconds) {
  const Lock lock;
  start_machine();
  policy().peer_deadline_ms = milliseconds;
}

CUDASIM_API void set_nccl_version(int version) {
  const Lock lock;
  start_machine();
  policy().nccl_version = version;
}

int device_count() { return machine().count; }
int device_capability() { return machine().capability; }
Device& device(int index) { return machine().devices[index]; }
HandleTable<Stream>& streams() { return machine().streams; }
HandleTable<Event>& events() { return machine().events; }

std::shared_ptr<Stream> find_stream(cudaStream_t handle) {
  start_machine();
  if (handle == nullptr || handle == cudaStreamLegacy) return device(t_device).legacy;
  return streams().find(handle);
}

CUDASIM_API int current_device() { return t_device; }
void set_current_device(int index) { t_device = index; }

CUDASIM_API int device_of(cudaStream_t stream) {
  const Lock lock;
  const std::shared_ptr<Stream> found = find_stream(stream);
  return found == nullptr ? -1 : found->device;
}

bool reaches(int from, int other) { return other == kHost || from == other || device(from).peer_enabled[other]; }

CUDASIM_API cudaError_t sticky_error(int index) { return device(index).sticky; }
void set_sticky_error(int index, cudaError_t error) { device(index).sticky = error; }

cudaError_t set_last_error(cudaError_t error) {
  // "Not ready" is an answer, no error.
  if (error != cudaSuccess && error != cudaErrorNotReady) t_last_error = error;
  return error;
}
cudaError_t last_error() { return t_last_error; }
void clear_last_error() { t_last_error = cudaSuccess; }

}  // namespace cudasim
