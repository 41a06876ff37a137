// Stream capture; see the header. The rules and error codes are those of the CUDA programming guide, section "CUDA
// graphs", and of the manual pages of the functions.
#include "tests/cudasim/capture.h"

#include <algorithm>
#include <set>

namespace cudasim {
namespace {

struct State {
  HandleTable<Graph> graphs{0x53};
  HandleTable<GraphExec> execs{0x54};
  std::vector<std::shared_ptr<Capture>> active;
  unsigned long long next_id = 1;
};

State& state() {
  static auto* instance = new State;
  return *instance;
}

thread_local cudaStreamCaptureMode t_mode = cudaStreamCaptureModeGlobal;

// Whether a capture forbids unsafe calls to the calling thread.
bool forbids_unsafe_calls(const Capture& capture) {
  const bool own = capture.thread == std::this_thread::get_id();
  switch (t_mode) {
    case cudaStreamCaptureModeRelaxed: return false;
    case cudaStreamCaptureModeThreadLocal: return own && capture.mode != cudaStreamCaptureModeRelaxed;
    default: return own ? capture.mode != cudaStreamCaptureModeRelaxed : capture.mode == cudaStreamCaptureModeGlobal;
  }
}

// Spoils the captures of the device's streams for which `which` holds; returns whether there were any.
bool invalidate_captures(int device, bool (*which)(const Stream&)) {
  bool any = false;
  for (const auto& [handle, stream] : streams().all()) {
    if (stream->device != device || stream->capture == nullptr || !which(*stream)) continue;
    stream->capture->invalidated = true;
    any = true;
  }
  return any;
}

// Nodes that `tail` comes after, itself included.
std::set<std::size_t> ancestors(const Graph& graph, const std::vector<std::size_t>& tail) {
  std::set<std::size_t> seen;
  std::vector<std::size_t> open = tail;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    const std::vector<std::size_t>& before = graph.nodes[node].dependencies;
    open.insert(open.end(), before.begin(), before.end());
  }
  return seen;
}

void finish(Capture& capture) {
  capture.ended = true;
  for (const std::weak_ptr<Stream>& member : capture.members) {
    if (const std::shared_ptr<Stream> stream = member.lock(); stream != nullptr) leave_capture(*stream);
  }
  std::erase_if(state().active, [&](const std::shared_ptr<Capture>& other) { return other.get() == &capture; });
}

void merge(std::vector<std::size_t>& into, const std::vector<std::size_t>& from) {
  into.insert(into.end(), from.begin(), from.end());
  std::sort(into.begin(), into.end());
  into.erase(std::unique(into.begin(), into.end()), into.end());
}

}  // namespace

HandleTable<Graph>& graphs() { return state().graphs; }
HandleTable<GraphExec>& graph_execs() { return state().execs; }
cudaStreamCaptureMode& thread_capture_mode() { return t_mode; }

cudaError_t record_operation(Stream& stream, const Op& op, const void* function) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  Node node;
  node.name = op.name;
  node.kind = op.kind;
  node.marker = op.marker;
  node.device = stream.device;
  node.stream_number = stream.number;
  node.accesses = op.accesses;
  node.body = op.body;
  node.join = op.join;
  node.function = function;
  node.dependencies = stream.capture_tail;
  stream.capture_tail = {capture.graph.nodes.size()};
  capture.graph.nodes.push_back(std::move(node));
  return cudaSuccess;
}

cudaError_t refuse(Stream& stream, cudaError_t error) {
  if (stream.capture == nullptr) return cudaSuccess;
  stream.capture->invalidated = true;
  return error;
}

cudaError_t check_unsafe_call() {
  bool forbidden = false;
  for (const std::shared_ptr<Capture>& capture : state().active) {
    if (!forbids_unsafe_calls(*capture)) continue;
    capture->invalidated = true;
    forbidden = true;
  }
  return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t check_device_wait(int device) {
  const bool forbidden = invalidate_captures(device, [](const Stream&) { return true; });
  return forbidden ? cudaErrorStreamCaptureUnsupported : check_unsafe_call();
}

cudaError_t check_legacy_stream(int device) {
  const bool forbidden = invalidate_captures(device, [](const Stream& stream) { return stream.blocking(); });
  return forbidden ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

cudaError_t begin_capture(const std::shared_ptr<Stream>& stream, cudaStreamCaptureMode mode) {
  if (stream->legacy()) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  if (mode != cudaStreamCaptureModeGlobal && mode != cudaStreamCaptureModeThreadLocal &&
      mode != cudaStreamCaptureModeRelaxed) {
    return cudaErrorInvalidValue;
  }
  const auto capture = std::make_shared<Capture>();
  capture->id = state().next_id++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->members.push_back(stream);
  state().active.push_back(capture);
  stream->capture = capture;
  stream->capture_tail.clear();
  return cudaSuccess;
}

cudaError_t end_capture(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>* graph) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin.lock() != stream) {
    capture->invalidated = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  const bool invalidated = capture->invalidated;
  // Everything that was forked must have been joined: the last node of every stream comes before the origin's end.
  const std::set<std::size_t> joined = ancestors(capture->graph, stream->capture_tail);
  const bool all_joined = joined.size() == capture->graph.nodes.size();
  finish(*capture);
  if (invalidated) return cudaErrorStreamCaptureInvalidated;
  if (!all_joined) return cudaErrorStreamCaptureUnjoined;
  *graph = std::make_shared<Graph>(std::move(capture->graph));
  return cudaSuccess;
}

cudaError_t record_event_in_capture(Stream& stream, Event& event) {
  if (stream.capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  event.capture = stream.capture;
  event.capture_nodes = stream.capture_tail;
  event.op = nullptr;
  return cudaSuccess;
}

cudaError_t wait_event_in_capture(const std::shared_ptr<Stream>& stream, const Event& event) {
  if (event.capture == nullptr) return refuse(*stream, cudaErrorStreamCaptureIsolation);
  Capture& capture = *event.capture;
  if (capture.ended) {
    // The event was recorded in a capture that is over: it stands for no work that could be awaited.
    return stream->capture != nullptr ? refuse(*stream, cudaErrorStreamCaptureIsolation) : cudaErrorCapturedEvent;
  }
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  if (stream->legacy()) {
    capture.invalidated = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (stream->capture == nullptr) {
    stream->capture = event.capture;
    stream->capture_tail = event.capture_nodes;
    capture.members.push_back(stream);
    return cudaSuccess;
  }
  if (stream->capture != event.capture) {
    capture.invalidated = true;
    return refuse(*stream, cudaErrorStreamCaptureMerge);
  }
  merge(stream->capture_tail, event.capture_nodes);
  return cudaSuccess;
}

void leave_capture(Stream& stream) {
  stream.capture = nullptr;
  stream.capture_tail.clear();
}

void clear_captures() {
  for (const std::shared_ptr<Capture>& capture : state().active) {
    for (const std::weak_ptr<Stream>& member : capture->members) {
      if (const std::shared_ptr<Stream> stream = member.lock(); stream != nullptr) leave_capture(*stream);
    }
  }
  state().active.clear();
  state().graphs.clear();
  state().execs.clear();
  t_mode = cudaStreamCaptureModeGlobal;
}

GraphCounts count_nodes(const Graph& graph) {
  GraphCounts counts;
  counts.nodes = static_cast<std::int64_t>(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    if (node.marker) continue;
    switch (node.kind) {
      case OpKind::kernel: ++counts.kernels; break;
      case OpKind::library_call: ++counts.library_calls; break;
      case OpKind::collective: ++counts.collectives; break;
      case OpKind::host_function: ++counts.host_functions; break;
      case OpKind::copy: ++counts.copies; break;
      case OpKind::fill: ++counts.fills; break;
    }
  }
  return counts;
}

}  // namespace cudasim
