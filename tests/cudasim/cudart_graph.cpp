// The CUDA runtime's functions for graphs that were captured from streams.
#include <algorithm>

#include "tests/cudasim/api.h"

using namespace cudasim;

namespace {

// The graph that was launched last, for tests.
GraphCounts g_last_launched;
std::uintptr_t g_next_node_handle = std::uintptr_t{0x56} << 40;

cudaGraphNode_t node_handle(Graph& graph, std::size_t node) {
  if (graph.node_handles == 0) {
    graph.node_handles = g_next_node_handle;
    g_next_node_handle += (graph.nodes.size() + 1) * 8;
  }
  return reinterpret_cast<cudaGraphNode_t>(graph.node_handles + node * 8);
}

const Node* find_node(cudaGraphNode_t handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  for (const auto& [graph_handle, graph] : graphs().all()) {
    if (graph->node_handles == 0 || value < graph->node_handles) continue;
    const std::size_t index = (value - graph->node_handles) / 8;
    if (index < graph->nodes.size()) return &graph->nodes[index];
  }
  return nullptr;
}

cudaGraphNodeType type_of(const Node& node) {
  switch (node.kind) {
    case OpKind::copy: return cudaGraphNodeTypeMemcpy;
    case OpKind::fill: return cudaGraphNodeTypeMemset;
    case OpKind::host_function: return cudaGraphNodeTypeHost;
    default: return cudaGraphNodeTypeKernel;
  }
}

cudaError_t instantiate(cudaGraphExec_t* handle, cudaGraph_t graph_handle, unsigned long long flags) {
  constexpr unsigned long long kKnown = cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
                                        cudaGraphInstantiateFlagUseNodePriority;
  const std::shared_ptr<Graph> graph = graphs().find(graph_handle);
  if (handle == nullptr || graph == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  const auto exec = std::make_shared<GraphExec>();
  exec->graph = *graph;
  exec->device = current_device();
  graph_execs().add(exec, handle);
  return cudaSuccess;
}

// Queues every node anew. Nodes without predecessors come after the stream's last operation; the stream goes on after
// all of them.
cudaError_t launch(GraphExec& exec, const std::shared_ptr<Stream>& stream) {
  ++mutable_counters().graph_launches;
  g_last_launched = count_nodes(exec.graph);
  const OpPtr begin = make_marker("cudaGraphLaunch", stream->device);
  begin->dependencies.push_back(exec.last_launch);
  queue_now(*stream, begin);
  std::vector<OpPtr> ops;
  for (const Node& node : exec.graph.nodes) {
    const auto op = std::make_shared<Op>();
    op->name = node.name;
    op->kind = node.kind;
    op->marker = node.marker;
    op->device = node.device;
    op->stream_number = node.stream_number;
    op->accesses = node.accesses;
    op->body = node.body;
    if (node.join) op->collective = node.join();
    op->dependencies.push_back(begin);
    for (const std::size_t dependency : node.dependencies) op->dependencies.push_back(ops[dependency]);
    if (!node.marker) count_operation(*op, true);
    ops.push_back(op);
    submit(op);
  }
  const OpPtr end = make_marker("end of cudaGraphLaunch", stream->device);
  end->dependencies = ops;
  queue_now(*stream, end);
  exec.last_launch = end;
  return cudaSuccess;
}

// Why an executable graph cannot take over a new graph; cudaGraphExecUpdateSuccess if it can. node is the culprit.
cudaGraphExecUpdateResult compare(const Graph& old_graph, const Graph& new_graph, std::size_t* node) {
  *node = 0;
  if (old_graph.nodes.size() != new_graph.nodes.size()) return cudaGraphExecUpdateErrorTopologyChanged;
  for (std::size_t i = 0; i < new_graph.nodes.size(); ++i) {
    const Node& before = old_graph.nodes[i];
    const Node& after = new_graph.nodes[i];
    *node = i;
    if (before.dependencies != after.dependencies) return cudaGraphExecUpdateErrorTopologyChanged;
    if (before.kind != after.kind) return cudaGraphExecUpdateErrorNodeTypeChanged;
    if (before.device != after.device) return cudaGraphExecUpdateErrorUnsupportedFunctionChange;
    if (before.function != after.function || before.name != after.name) {
      return cudaGraphExecUpdateErrorUnsupportedFunctionChange;
    }
  }
  return cudaGraphExecUpdateSuccess;
}

}  // namespace

namespace cudasim {

CUDASIM_API GraphCounts graph_counts(cudaGraphExec_t handle) {
  const Lock lock;
  const std::shared_ptr<GraphExec> exec = graph_execs().find(handle);
  if (exec == nullptr) die("graph_counts() of a graph that does not exist");
  return count_nodes(exec->graph);
}

CUDASIM_API GraphCounts last_launched_graph() {
  const Lock lock;
  return g_last_launched;
}

void clear_last_launched_graph() { g_last_launched = GraphCounts{}; }

}  // namespace cudasim

CUDART cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return destroy("cudaGraphDestroy",
                 [&] { return graphs().remove(graph) == nullptr ? cudaErrorInvalidValue : cudaSuccess; });
}

CUDART cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count) {
  return call("cudaGraphGetNodes", [&] {
    const std::shared_ptr<Graph> graph = graphs().find(handle);
    if (graph == nullptr || count == nullptr) return cudaErrorInvalidValue;
    if (nodes != nullptr) {
      for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < graph->nodes.size() ? node_handle(*graph, i) : nullptr;
      *count = std::min(*count, graph->nodes.size());
    } else {
      *count = graph->nodes.size();
    }
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, cudaGraphNodeType* type) {
  return call("cudaGraphNodeGetType", [&] {
    const Node* node = find_node(handle);
    if (node == nullptr || type == nullptr) return cudaErrorInvalidValue;
    *type = type_of(*node);
    return cudaSuccess;
  });
}

CUDART cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return call("cudaGraphInstantiate", [&] { return instantiate(exec, graph, flags); });
}

CUDART cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return call("cudaGraphInstantiateWithFlags", [&] { return instantiate(exec, graph, flags); });
}

CUDART cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return destroy("cudaGraphExecDestroy",
                 [&] { return graph_execs().remove(exec) == nullptr ? cudaErrorInvalidValue : cudaSuccess; });
}

CUDART cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream_handle) {
  return call("cudaGraphUpload", [&] {
    const std::shared_ptr<Stream> stream = find_stream(stream_handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (graph_execs().find(exec) == nullptr) return cudaErrorInvalidValue;
    return refuse(*stream, cudaErrorStreamCaptureUnsupported);
  });
}

CUDART cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  return call("cudaGraphLaunch", [&] {
    const std::shared_ptr<Stream> stream = find_stream(stream_handle);
    const std::shared_ptr<GraphExec> exec = graph_execs().find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (exec == nullptr) return cudaErrorInvalidValue;
    if (stream->capture != nullptr) return refuse(*stream, cudaErrorStreamCaptureUnsupported);
    if (stream->legacy()) {
      if (const cudaError_t error = check_legacy_stream(stream->device); error != cudaSuccess) return error;
    }
    return launch(*exec, stream);
  });
}

CUDART cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec_handle, cudaGraph_t graph_handle,
                                       cudaGraphExecUpdateResultInfo* info) {
  return call("cudaGraphExecUpdate", [&] {
    const std::shared_ptr<GraphExec> exec = graph_execs().find(exec_handle);
    const std::shared_ptr<Graph> graph = graphs().find(graph_handle);
    if (exec == nullptr || graph == nullptr || info == nullptr) return cudaErrorInvalidValue;
    *info = cudaGraphExecUpdateResultInfo{};
    std::size_t node = 0;
    info->result = compare(exec->graph, *graph, &node);
    if (info->result != cudaGraphExecUpdateSuccess) {
      if (node < graph->nodes.size()) info->errorNode = node_handle(*graph, node);
      return cudaErrorGraphExecUpdateFailure;
    }
    exec->graph = *graph;
    return cudaSuccess;
  });
}
