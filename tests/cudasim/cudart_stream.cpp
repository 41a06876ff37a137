// The CUDA runtime's functions for streams, host functions and stream capture.
#include <algorithm>
#include <utility>

#include "tests/cudasim/api.h"
#include "tests/cudasim/device_limits.h"
#include "tests/cudasim/executor.h"

using namespace cudasim;

namespace {

std::int64_t g_next_number = 1;

cudaError_t create(cudaStream_t* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return cudaErrorInvalidValue;
  const auto stream = std::make_shared<Stream>();
  stream->device = current_device();
  stream->flags = flags;
  stream->priority = std::min(kLeastPriority, std::max(kGreatestPriority, priority));
  stream->number = g_next_number++;
  streams().add(stream, handle);
  prepare_stream(stream->device, stream->number);
  stream->handle = *handle;
  return cudaSuccess;
}

// The last operations that a wait for this stream waits for.
std::vector<OpPtr> ends_of(const Stream& stream) {
  std::vector<OpPtr> ends = {stream.last};
  if (stream.legacy()) {
    for (const auto& [handle, other] : streams().all()) {
      if (other->device == stream.device && other->blocking()) ends.push_back(other->last);
    }
  }
  return ends;
}

// Checks that the host may wait for or ask about a stream.
cudaError_t check_wait(const std::shared_ptr<Stream>& stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) return refuse(*stream, cudaErrorStreamCaptureUnsupported);
  if (stream->legacy()) {
    if (const cudaError_t error = check_legacy_stream(stream->device); error != cudaSuccess) return error;
  }
  return check_unsafe_call();
}

cudaStreamCaptureStatus capture_status(const Stream& stream) {
  if (stream.capture == nullptr) return cudaStreamCaptureStatusNone;
  return stream.capture->invalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

}  // namespace

CUDART cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call("cudaStreamCreate", [&] { return create(stream, cudaStreamDefault, 0); });
}

CUDART cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&] { return create(stream, flags, 0); });
}

CUDART cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", [&] { return create(stream, flags, priority); });
}

// Work that is queued still runs.
CUDART cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return destroy("cudaStreamDestroy", [&] {
    const std::shared_ptr<Stream> stream = streams().remove(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return refuse(*stream, cudaErrorStreamCaptureUnsupported);
  });
}

CUDART cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call("cudaStreamSynchronize", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (const cudaError_t error = check_wait(stream); error != cudaSuccess) return error;
    count_host_wait();
    for (const OpPtr& op : ends_of(*stream)) wait_for(op);
    return after_wait(stream->device);
  });
}

CUDART cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call("cudaStreamQuery", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (const cudaError_t error = check_wait(stream); error != cudaSuccess) return error;
    for (const OpPtr& op : ends_of(*stream)) {
      if (op == nullptr || op->done()) {
        wait_for(op);
        continue;
      }
      // Time passes: a program that asks again and again gets there.
      advance(op);
      return cudaErrorNotReady;
    }
    return after_wait(stream->device);
  });
}

CUDART cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  return call("cudaStreamWaitEvent", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    const std::shared_ptr<Event> event = events().find(event_handle);
    if (stream == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != cudaEventWaitDefault) return cudaErrorInvalidValue;
    if (stream->capture != nullptr || event->capture != nullptr) return wait_event_in_capture(stream, *event);
    ++mutable_counters().event_waits;
    const OpPtr op = make_marker("cudaStreamWaitEvent", stream->device);
    op->dependencies.push_back(event->op);
    return queue(stream, op, nullptr);
  });
}

CUDART cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call("cudaLaunchHostFunc", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    const auto op = std::make_shared<Op>();
    op->name = "cudaLaunchHostFunc";
    op->kind = OpKind::host_function;
    op->body = [=] { function(data); };
    return queue(stream, op, nullptr);
  });
}

CUDART cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return ask([&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = stream->flags;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return ask([&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (priority == nullptr) return cudaErrorInvalidValue;
    *priority = stream->priority;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* index) {
  return ask([&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (index == nullptr) return cudaErrorInvalidValue;
    *index = stream->device;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return ask([&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (id == nullptr) return cudaErrorInvalidValue;
    *id = static_cast<unsigned long long>(stream->number);
    return cudaSuccess;
  });
}

// ---- Capture -------------------------------------------------------------------------------------------------------

CUDART cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return begin_capture(stream, mode);
  });
}

CUDART cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph_handle) {
  return call("cudaStreamEndCapture", [&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (graph_handle == nullptr) return cudaErrorInvalidValue;
    *graph_handle = nullptr;
    std::shared_ptr<Graph> graph;
    if (const cudaError_t error = end_capture(stream, &graph); error != cudaSuccess) return error;
    graphs().add(graph, graph_handle);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return ask([&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (status == nullptr) return cudaErrorInvalidValue;
    if (stream->legacy()) {
      if (const cudaError_t error = check_legacy_stream(stream->device); error != cudaSuccess) return error;
    }
    *status = capture_status(*stream);
    return cudaSuccess;
  });
}

// Tells the status and the number of the capture; its graph and edges are not given out before it ends.
CUDART cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                            unsigned long long* id, cudaGraph_t* graph,
                                            const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                            std::size_t* dependency_count) {
  return ask([&] {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (status == nullptr) return cudaErrorInvalidValue;
    if (graph != nullptr || dependencies != nullptr || edges != nullptr || dependency_count != nullptr) {
      return cudaErrorNotSupported;
    }
    *status = capture_status(*stream);
    if (id != nullptr) *id = stream->capture == nullptr ? 0 : stream->capture->id;
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return ask([&] {
    if (mode == nullptr) return cudaErrorInvalidValue;
    std::swap(thread_capture_mode(), *mode);
    return cudaSuccess;
  });
}
