// The CUDA runtime's functions for events.
#include "tests/cudasim/api.h"

using namespace cudasim;

namespace {

cudaError_t create(cudaEvent_t* handle, unsigned flags) {
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  if (handle == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  if ((flags & cudaEventInterprocess) != 0) return cudaErrorNotSupported;
  const auto event = std::make_shared<Event>();
  event->device = current_device();
  event->flags = flags;
  events().add(event, handle);
  return cudaSuccess;
}

// Checks that the host may wait for or ask about an event.
cudaError_t check_wait(const std::shared_ptr<Event>& event) {
  if (event == nullptr) return cudaErrorInvalidResourceHandle;
  if (event->capture != nullptr) {
    event->capture->invalidated = true;
    return cudaErrorCapturedEvent;
  }
  return check_unsafe_call();
}

}  // namespace

CUDART cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call("cudaEventCreate", [&] { return create(event, cudaEventDefault); });
}

CUDART cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&] { return create(event, flags); });
}

CUDART cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return destroy("cudaEventDestroy",
                 [&] { return events().remove(event) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess; });
}

CUDART cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return call("cudaEventRecord", [&] {
    const std::shared_ptr<Event> event = events().find(handle);
    const std::shared_ptr<Stream> stream = find_stream(stream_handle);
    if (event == nullptr || stream == nullptr || event->device != stream->device) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return record_event_in_capture(*stream, *event);
    const OpPtr op = make_marker("cudaEventRecord", stream->device);
    if (const cudaError_t error = queue(stream, op, nullptr); error != cudaSuccess) return error;
    ++mutable_counters().event_records;
    event->capture = nullptr;
    event->op = op;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call("cudaEventSynchronize", [&] {
    const std::shared_ptr<Event> event = events().find(handle);
    if (const cudaError_t error = check_wait(event); error != cudaSuccess) return error;
    count_host_wait();
    wait_for(event->op);
    return after_wait(event->device);
  });
}

CUDART cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call("cudaEventQuery", [&] {
    const std::shared_ptr<Event> event = events().find(handle);
    if (const cudaError_t error = check_wait(event); error != cudaSuccess) return error;
    const OpPtr op = event->op;
    if (op == nullptr || op->done()) {
      wait_for(op);
      return after_wait(event->device);
    }
    advance(op);
    return cudaErrorNotReady;
  });
}

CUDART cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin_handle, cudaEvent_t end_handle) {
  return call("cudaEventElapsedTime", [&] {
    const std::shared_ptr<Event> begin = events().find(begin_handle);
    const std::shared_ptr<Event> end = events().find(end_handle);
    if (begin == nullptr || end == nullptr) return cudaErrorInvalidResourceHandle;
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    if (((begin->flags | end->flags) & cudaEventDisableTiming) != 0 || begin->op == nullptr || end->op == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!begin->op->done() || !end->op->done()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(end->op->finished - begin->op->finished).count();
    return cudaSuccess;
  });
}
