// What tests ask and tell: counters, the trace, failures to inject, what is still alive.
#include <map>
#include <set>

#include "tests/cudasim/capture.h"
#include "tests/cudasim/machine.h"
#include "tests/cudasim/pools.h"

namespace cudasim {
namespace {

struct Failure {
  std::string function;
  std::int64_t calls_left = 0;
  bool from_then_on = false;
  bool library = false;
  int code = 0;
};

struct State {
  Counters counters;
  bool tracing = false;
  std::vector<OpRecord> trace;
  std::vector<Failure> failures;
  std::int64_t calls = 0;
  // Kind -> handles of libraries that are alive.
  std::map<std::string, std::set<const void*>> handles;
};

State& state() {
  static auto* instance = new State;
  return *instance;
}

void add_failure(const Failure& failure) {
  const Lock lock;
  if (failure.calls_left < 1)
    die("a failure of call number %lld was asked for", static_cast<long long>(failure.calls_left));
  state().failures.push_back(failure);
}

// Counts one call; returns the code of the failure that it hits, 0 if none.
int next_failure(const char* function, bool library) {
  ++state().calls;
  int code = 0;
  std::erase_if(state().failures, [&](Failure& failure) {
    if (code != 0 || (!failure.function.empty() && failure.function != function)) return false;
    if (failure.library != library && !failure.function.empty()) return false;
    if (failure.calls_left > 1) {
      --failure.calls_left;
      return false;
    }
    code = failure.code;
    return !failure.from_then_on;
  });
  return code;
}

}  // namespace

Counters& mutable_counters() { return state().counters; }
void count_host_wait() { ++state().counters.host_waits; }

void count_operation(const Op& op, bool in_graph) {
  Counters& counters = state().counters;
  OpRecord record;
  record.kind = op.kind;
  record.name = op.name;
  record.device = op.device;
  record.stream = op.stream_number;
  record.in_graph = in_graph;
  for (const Access& access : op.accesses) {
    (access.write ? record.bytes_written : record.bytes_read) += static_cast<std::int64_t>(access.nbytes);
  }
  switch (op.kind) {
    case OpKind::kernel: ++counters.kernels; break;
    case OpKind::library_call: ++counters.library_calls; break;
    case OpKind::collective: ++counters.collectives; break;
    case OpKind::host_function: ++counters.host_functions; break;
    case OpKind::fill: ++counters.fills; break;
    case OpKind::copy: {
      bool from_device = false;
      bool to_device = false;
      for (const Access& access : op.accesses)
        (access.write ? to_device : from_device) |= is_device_pointer(access.data);
      if (from_device) {
        ++(to_device ? counters.copies_device_to_device : counters.copies_device_to_host);
      } else {
        ++(to_device ? counters.copies_host_to_device : counters.copies_host_to_host);
      }
      break;
    }
  }
  counters.bytes_read += record.bytes_read;
  counters.bytes_written += record.bytes_written;
  if (state().tracing) state().trace.push_back(std::move(record));
}

CUDASIM_API Counters counters() {
  const Lock lock;
  return state().counters;
}

CUDASIM_API void reset_counters() {
  const Lock lock;
  state().counters = Counters{};
}

CUDASIM_API void set_tracing(bool on) {
  const Lock lock;
  state().tracing = on;
  if (on) state().trace.clear();
}

CUDASIM_API std::vector<OpRecord> trace() {
  const Lock lock;
  return state().trace;
}

void clear_trace() {
  state().tracing = false;
  state().trace.clear();
}

CUDASIM_API void fail_nth(const std::string& function, std::int64_t nth, cudaError_t error) {
  add_failure({function, nth, false, false, static_cast<int>(error)});
}

CUDASIM_API void fail_from_nth(const std::string& function, std::int64_t nth, cudaError_t error) {
  add_failure({function, nth, true, false, static_cast<int>(error)});
}

CUDASIM_API void fail_nth_library_call(const std::string& function, std::int64_t nth, int status) {
  add_failure({function, nth, false, true, status});
}

CUDASIM_API void clear_failures() {
  const Lock lock;
  state().failures.clear();
  state().calls = 0;
}

CUDASIM_API std::int64_t calls_made() {
  const Lock lock;
  return state().calls;
}

CUDASIM_API cudaError_t injected(const char* function) {
  const Lock lock;
  return static_cast<cudaError_t>(next_failure(function, false));
}

CUDASIM_API int injected_library(const char* function) {
  const Lock lock;
  return next_failure(function, true);
}

CUDASIM_API void handle_created(const char* kind, const void* handle) {
  const Lock lock;
  state().handles[kind].insert(handle);
}

CUDASIM_API bool handle_destroyed(const char* kind, const void* handle) {
  const Lock lock;
  return state().handles[kind].erase(handle) == 1;
}

CUDASIM_API bool handle_alive(const char* kind, const void* handle) {
  const Lock lock;
  return state().handles[kind].count(handle) == 1;
}

void clear_handles() { state().handles.clear(); }

CUDASIM_API std::vector<Leak> leaks() {
  const Lock lock;
  start_machine();
  std::vector<Leak> found;
  for (const auto& [handle, stream] : streams().all()) {
    found.push_back(
        {"stream", "number " + std::to_string(stream->number) + " of device " + std::to_string(stream->device)});
  }
  for (const auto& [handle, event] : events().all()) {
    found.push_back({"event", "of device " + std::to_string(event->device)});
  }
  for (const auto& [handle, graph] : graphs().all()) {
    found.push_back({"graph", std::to_string(graph->nodes.size()) + " nodes"});
  }
  for (const auto& [handle, exec] : graph_execs().all()) {
    found.push_back({"graph exec", std::to_string(exec->graph.nodes.size()) + " nodes"});
  }
  add_pool_leaks(found);
  for (const auto& [address, allocation] : live_allocations()) {
    const char* kind = allocation.device != kHost ? "device memory"
                       : allocation.region != 0   ? "pinned memory"
                                                  : "registered memory";
    found.push_back({kind, "#" + std::to_string(allocation.number) + ", " + std::to_string(allocation.nbytes) +
                               " bytes from " + allocation.function +
                               (allocation.device == kHost ? "" : ", device " + std::to_string(allocation.device))});
  }
  for (const auto& [kind, handles] : state().handles) {
    for (std::size_t i = 0; i < handles.size(); ++i) found.push_back({kind, "a handle of a library"});
  }
  return found;
}

}  // namespace cudasim
