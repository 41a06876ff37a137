// The frame of every function of the CUDA runtime: the lock, the state of the machine, injected failures, errors.
#pragma once

#include "tests/cudasim/capture.h"
#include "tests/cudasim/internal.h"
#include "tests/cudasim/lock.h"
#include "tests/cudasim/machine.h"

// Start of the definition of a function of the CUDA runtime.
#define CUDART extern "C" CUDASIM_API

namespace cudasim {

// A function that only asks: no failure is injected and errors of the device do not matter. body: () -> cudaError_t.
template <class Body>
cudaError_t ask(Body&& body) {
  const Lock lock;
  start_machine();
  if (device_count() == 0) return set_last_error(cudaErrorNoDevice);
  return set_last_error(body());
}

// A function that does something.
template <class Body>
cudaError_t call(const char* function, Body&& body) {
  const Lock lock;
  start_machine();
  if (device_count() == 0) return set_last_error(cudaErrorNoDevice);
  if (in_host_function()) return set_last_error(cudaErrorNotPermitted);
  if (const cudaError_t error = injected(function); error != cudaSuccess) return set_last_error(error);
  if (const cudaError_t error = sticky_error(current_device()); error != cudaSuccess) return set_last_error(error);
  run_some();
  return set_last_error(body());
}

// A function that does something and is unsafe while a stream is captured.
template <class Body>
cudaError_t call_unsafe(const char* function, Body&& body) {
  return call(function, [&] {
    const cudaError_t error = check_unsafe_call();
    return error != cudaSuccess ? error : body();
  });
}

// A function that destroys something: it does so even when it returns an error, an injected one included, as a program
// can do nothing more about it.
template <class Body>
cudaError_t destroy(const char* function, Body&& body) {
  const Lock lock;
  start_machine();
  if (device_count() == 0) return set_last_error(cudaErrorNoDevice);
  if (in_host_function()) return set_last_error(cudaErrorNotPermitted);
  const cudaError_t asked_for = injected(function);
  const cudaError_t error = body();
  if (asked_for != cudaSuccess) return set_last_error(asked_for);
  if (const cudaError_t sticky = sticky_error(current_device()); sticky != cudaSuccess) return set_last_error(sticky);
  return set_last_error(error);
}

// The result of a wait: the device's sticky error, if the wait ran into one.
inline cudaError_t after_wait(int device) { return sticky_error(device); }

}  // namespace cudasim
