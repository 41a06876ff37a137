// Stream capture and graphs. Used by the queue, the graph functions, and every function that is illegal in a capture.
// Everything here needs the lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cudasim/machine.h"

namespace cudasim {

// A recorded operation. Nodes come after those that they depend on.
struct Node {
  std::string name;
  OpKind kind = OpKind::kernel;
  bool marker = false;
  int device = 0;
  std::int64_t stream_number = 0;
  std::vector<Access> accesses;
  std::function<void()> body;
  std::function<std::shared_ptr<Collective>()> join;
  // The kernel's address, for updates.
  const void* function = nullptr;
  std::vector<std::size_t> dependencies;
};

struct Graph {
  std::vector<Node> nodes;
  // What cudaGraphGetNodes gave out for each node.
  std::uintptr_t node_handles = 0;
};

struct GraphExec {
  Graph graph;
  int device = 0;
  // Launches of one executable graph run one after the other.
  OpPtr last_launch;
};

struct Capture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  std::weak_ptr<Stream> origin;
  bool invalidated = false;
  bool ended = false;
  Graph graph;
  // Every stream that takes part.
  std::vector<std::weak_ptr<Stream>> members;
};

HandleTable<Graph>& graphs();
HandleTable<GraphExec>& graph_execs();

// The calling thread's mode for calls that a capture forbids (cudaThreadExchangeStreamCaptureMode).
cudaStreamCaptureMode& thread_capture_mode();

// Records an operation of a stream that is being captured.
cudaError_t record_operation(Stream& stream, const Op& op, const void* function);
// Called by functions that are unsafe while a stream is captured (allocation, waits, queries): an error, and the
// capture is spoilt, if the calling thread must not do this now.
cudaError_t check_unsafe_call();
// Called by functions that wait for a whole device: illegal while any of its streams is captured.
cudaError_t check_device_wait(int device);
// Called for work on the legacy stream, which would wait for a blocking stream that is being captured.
cudaError_t check_legacy_stream(int device);
// For a call that a stream which is being captured does not allow: spoils the capture.
cudaError_t refuse(Stream& stream, cudaError_t error);

cudaError_t begin_capture(const std::shared_ptr<Stream>& stream, cudaStreamCaptureMode mode);
// Returns the graph, nullptr with an error.
cudaError_t end_capture(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>* graph);
cudaError_t record_event_in_capture(Stream& stream, Event& event);
// Makes the stream wait for an event; one of the two belongs to a capture. The stream joins the event's capture.
cudaError_t wait_event_in_capture(const std::shared_ptr<Stream>& stream, const Event& event);
void leave_capture(Stream& stream);
// Forgets all captures and graphs.
void clear_captures();

// Forgets what last_launched_graph() tells.
void clear_last_launched_graph();
GraphCounts count_nodes(const Graph& graph);

}  // namespace cudasim
