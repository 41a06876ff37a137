// The simulated CUDA's own interface: what a test can ask of it and tell it, beside the CUDA functions that it offers.
// Used by tests that link cudasim. Product code must not know this header: it calls CUDA and nothing else.
//
// Every function may be called from any thread. Nothing here waits for a stream unless it says so.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#define CUDASIM_API __attribute__((visibility("default")))

namespace cudasim {

// A range of device memory (or of pinned host memory) that an operation reads, or writes if `write` is set. A range
// that is read and written is listed twice. `data` is a device pointer as the program holds it.
struct Access {
  const void* data = nullptr;
  std::size_t nbytes = 0;
  bool write = false;
};

// What an operation in a stream is. A library call (cuBLAS, cuDNN) is one operation, however much it computes.
enum class OpKind { kernel, library_call, copy, fill, host_function, collective };

// ---- Counters ----------------------------------------------------------------------------------------------------

// What was queued or called since the last reset. Operations of a graph count at each launch of the graph, not at
// capture.
struct Counters {
  std::int64_t kernels = 0;
  std::int64_t library_calls = 0;
  std::int64_t collectives = 0;
  std::int64_t host_functions = 0;
  std::int64_t fills = 0;
  std::int64_t copies_host_to_device = 0;
  std::int64_t copies_device_to_host = 0;
  std::int64_t copies_device_to_device = 0;
  std::int64_t copies_host_to_host = 0;
  // Calls at which the host blocks until the device has done something: synchronize, blocking copies, cudaFree.
  std::int64_t host_waits = 0;
  // cudaMalloc, cudaMallocAsync, cudaHostAlloc and their frees, and registered host memory.
  std::int64_t allocations = 0;
  std::int64_t frees = 0;
  std::int64_t graph_launches = 0;
  // Of the ranks' parts in NCCL's collectives those that ran in a window, at the same place of it on all ranks.
  std::int64_t collectives_in_windows = 0;
  std::int64_t event_records = 0;
  std::int64_t event_waits = 0;
  // Bytes that the operations declared (Access lists, copies, fills). A kernel declares with declare_next_launch().
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
};
CUDASIM_API Counters counters();
CUDASIM_API void reset_counters();

// One operation as it was queued.
struct OpRecord {
  OpKind kind = OpKind::kernel;
  std::string name;
  int device = 0;
  // Number of the stream: 0 is the legacy stream of the device, others count from 1 in order of creation.
  std::int64_t stream = 0;
  bool in_graph = false;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
};
// While tracing is on, every queued operation is appended to a list. Turning it on empties the list.
CUDASIM_API void set_tracing(bool on);
CUDASIM_API std::vector<OpRecord> trace();

// Operations in an instantiated graph.
struct GraphCounts {
  std::int64_t nodes = 0;
  std::int64_t kernels = 0;
  std::int64_t library_calls = 0;
  std::int64_t collectives = 0;
  std::int64_t host_functions = 0;
  std::int64_t copies = 0;
  std::int64_t fills = 0;
};
CUDASIM_API GraphCounts graph_counts(cudaGraphExec_t graph);
// Those of the graph that cudaGraphLaunch was called with last; all zero if there was none since the last reset().
CUDASIM_API GraphCounts last_launched_graph();

// ---- The machine ---------------------------------------------------------------------------------------------------

// Starts anew: drops queued operations, handles, memory, faults, counters and errors of every device, ends injected
// failures, and restores the settings of the environment. Handles and device pointers made before are invalid
// afterwards. Not while another thread is inside a CUDA call.
CUDASIM_API void reset();
// Number of devices, 0 to 8. With 0 every call fails with cudaErrorNoDevice, as on a machine without a GPU.
CUDASIM_API void set_device_count(int count);
// The compute capability of every device, 80 for 8.0. Programs that nvcc compiled need code for it in their files. All
// else stays that of sm_90.
CUDASIM_API void set_capability(int capability);
// Total memory of every device, which cudaMemGetInfo reports and past which allocations fail.
CUDASIM_API void set_device_memory(std::size_t nbytes);

// The order in which queued operations run, among those that CUDA allows.
struct StreamOrder {
  enum Kind {
    // Nothing runs before somebody waits for it, and then only what that wait needs.
    lazy,
    // Some of the operations that are ready run at each call, chosen by a generator with this seed.
    random,
    // An operation runs as soon as it is ready: for debugging, it hides missing waits.
    eager
  };
  Kind kind = lazy;
  std::uint32_t seed = 1;
};
CUDASIM_API void set_stream_order(StreamOrder order);
// The order in which the threads of a block, and the blocks of a grid, run.
enum class ThreadOrder { forward, reverse };
CUDASIM_API void set_thread_order(ThreadOrder order);

// Whether cuDNN proposes an engine whose results are not repeatable before all others, where there is one.
CUDASIM_API void set_nondeterministic_first(bool on);

// What NCCL says that it is (21805 for 2.18.5); a call of a function that came later ends the process. 0: as its
// header.
CUDASIM_API void set_nccl_version(int version);
// Whether kernels, library calls and collectives compute (they do at first). If not they are checked when queued,
// counted, recorded and ordered like any other, but touch no memory when they run: for what a program queues at full
// size, where results do not matter. What they would have written keeps what it held, which is NaN in fresh memory.
CUDASIM_API void set_computing(bool on);

// How long a wait for a collective's missing peer may last before the process is ended with a report.
CUDASIM_API void set_peer_deadline_ms(int milliseconds);

// ---- Failures ------------------------------------------------------------------------------------------------------

// From now on the nth call (1 is the next one) of the CUDA runtime function of that name returns error and does
// nothing else, once. The name is the function's as in the manual ("cudaMalloc"); "" means any function.
CUDASIM_API void fail_nth(const std::string& function, std::int64_t nth, cudaError_t error);
// Like fail_nth, but the nth and all later calls fail, except cudaGetLastError and other calls that only ask.
CUDASIM_API void fail_from_nth(const std::string& function, std::int64_t nth, cudaError_t error);
// Like fail_nth for the functions of cuBLAS and cuDNN: status is the number of the library's own status code.
CUDASIM_API void fail_nth_library_call(const std::string& function, std::int64_t nth, int status);
CUDASIM_API void clear_failures();
// How often functions that can fail were called since the last reset() or clear_failures(): runs a program once to
// know how many calls there are, then once per call with that call failing.
CUDASIM_API std::int64_t calls_made();

// What the simulator last reported on standard error about a fault that it answered with an error code.
CUDASIM_API std::string last_report();

// One thing that is still alive: "stream", "event", "graph", "graph exec", "memory pool", "device memory",
// "pinned memory", "registered memory", "NCCL memory" beside the device memory that it is, or a library's own handle.
struct Leak {
  std::string kind;
  std::string description;
};
CUDASIM_API std::vector<Leak> leaks();

// ---- Declared accesses ---------------------------------------------------------------------------------------------

// The next kernel launch of the calling thread uses these ranges of device memory and no other. While that kernel
// runs (each time, if it is captured), all other device memory is out of reach and ranges without a write entry
// cannot be written; a kernel that does it anyway faults. A range that is written and not read is overwritten as a
// whole: it has all its bits set when the kernel starts. Ranges must begin where the kernel's pointer arguments point,
// or before.
CUDASIM_API void declare_next_launch(const std::vector<Access>& accesses);

}  // namespace cudasim
