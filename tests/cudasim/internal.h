// What the files of the simulated CUDA share: how a CUDA function queues work, reaches device memory and reports
// errors. Used by the faces of the libraries (cudart_*.cpp, cublas*.cpp, cudnn*.cpp). It must not know any one library.
//
// A function of a library that works on a stream has this shape:
//
//   cublasStatus_t cublasSomething(cublasHandle_t handle, ...) {
//     Lock lock;                                                     // one global, recursive lock
//     if (int status = injected_library("cublasSomething")) return static_cast<cublasStatus_t>(status);
//     ... check arguments, read host scalars now ...
//     cudaError_t error = enqueue(stream, "cublasSomething", OpKind::library_call,
//                                 {{a, a_nbytes, false}, {c, c_nbytes, true}}, [=] {
//       const float* a_view = host_view(a, a_nbytes, false);         // only inside the body, only declared ranges
//       float* c_view = host_view(c, c_nbytes, true);
//       ... compute ...
//     });
//     return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
//   }
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cudasim/cudasim.h"

namespace cudasim {

// Holds the simulator's lock, which guards all of its state. Recursive. Bodies of operations run with it held,
// except host functions.
class CUDASIM_API Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

// The calling thread's current device.
CUDASIM_API int current_device();
// Device of a stream; nullptr, cudaStreamLegacy and cudaStreamPerThread belong to the current device.
// Returns -1 if there is no such stream.
CUDASIM_API int device_of(cudaStream_t stream);

// Queues an operation on stream, or records it if the stream is being captured; then body runs at each launch of the
// graph, so it must be repeatable and own what it captures. Reads no device memory at the call. name must outlive
// the program (a literal). Checks that the stream exists and belongs to the current device, and that every access is
// inside one live allocation that this device may reach. An access of 0 bytes is ignored. Returns: cudaSuccess, the
// device's sticky error, cudaErrorInvalidResourceHandle (no such stream, or of another device), cudaErrorInvalidValue
// (a range outside its allocation), or a capture error. Does not set the last error.
CUDASIM_API cudaError_t enqueue(cudaStream_t stream, const char* name, OpKind kind, std::vector<Access> accesses,
                                std::function<void()> body);

// One collective operation of several ranks: its body runs once, when every participant's operation is queued and
// ready. The body may view what any participant declared.
class Collective;
CUDASIM_API std::shared_ptr<Collective> make_collective(int participants, std::function<void()> body);
// Queues one participant's operation. join is called when the operation is queued (at each launch of the graph, if it
// is captured) and returns the collective that it takes part in: the communicator's next one. A rank that never comes
// ends the process with a report after the peer deadline; ranks that can never meet do so at once.
CUDASIM_API cudaError_t enqueue_collective(cudaStream_t stream, const char* name, std::vector<Access> accesses,
                                           std::function<std::shared_ptr<Collective>()> join);

// Address at which simulator code may read (or, with write, change) device memory: for bodies of operations only.
// The range must lie inside an access that the running operation declared, and its memory must still be alive;
// anything else is a device fault: it is reported, the body is left by an exception that the runner catches, and
// the device has the sticky error cudaErrorIllegalAddress from then on.
CUDASIM_API void* host_view_bytes(const void* device_pointer, std::size_t nbytes, bool write);
template <class T>
T* host_view(T* device_pointer, std::size_t nbytes, bool write) {
  return static_cast<T*>(host_view_bytes(device_pointer, nbytes, write));
}

// Whether the pointer points into memory of a device (alive or not), so that host code must not touch it.
CUDASIM_API bool is_device_pointer(const void* pointer);
// Whether [pointer, pointer + nbytes) lies inside one live device allocation or one pinned host allocation.
CUDASIM_API bool is_reachable(const void* pointer, std::size_t nbytes);

// ---- Errors
// --------------------------------------------------------------------------------------------------------------

// Called first in every function that can fail; counts the call. Returns the error that a test asked for, or
// cudaSuccess.
CUDASIM_API cudaError_t injected(const char* function);
// The same for a library with own status codes. Returns 0 unless a test asked for a failure.
CUDASIM_API int injected_library(const char* function);
// The device's sticky error, cudaSuccess if it has none.
CUDASIM_API cudaError_t sticky_error(int device);
// Ends the process with a message and a backtrace: for faults of the program under test that real hardware would answer
// with undefined behaviour or a hang.
[[noreturn]] CUDASIM_API __attribute__((format(printf, 1, 2))) void die(const char* format, ...);

// ---- Handles
// -------------------------------------------------------------------------------------------------------------

// Notes that a handle (or descriptor) is alive, for leaks() and to find the use of a destroyed one. kind is a literal.
CUDASIM_API void handle_created(const char* kind, const void* handle);
// Returns whether the handle was alive; it is not afterwards.
CUDASIM_API bool handle_destroyed(const char* kind, const void* handle);
CUDASIM_API bool handle_alive(const char* kind, const void* handle);

}  // namespace cudasim
