// From a GraphKey to cuDNN's operation graph. Used by cudnn_graph.cpp, and by the test that asks the real cuDNN what it
// can do; so it needs no GPU. Only the cudnn_* files and that test include this.
#pragma once

#include <vector>

#include "kernels/cuda/cudnn_descriptor.h"
#include "kernels/cuda/cudnn_graph.h"

namespace heddle::cuda {

// A finalized operation graph and the descriptors it is made of.
struct OperationGraph {
  std::vector<CudnnDescriptor> parts;
  CudnnDescriptor graph;
};

// handle may be null where only questions are asked. Throws: NotSupported if cuDNN says that it has no such graph;
// DeviceError.
OperationGraph build_operation_graph(const GraphKey& key, cudnnHandle_t handle);

// One engine with its settings, as cuDNN's heuristic proposes it.
struct EngineCandidate {
  CudnnDescriptor configuration;
  bool nondeterministic = false;
  bool rounds_factors = false;  // uses tensor cores, which for f32 tensors means TF32, or converts its inputs down
};
// What the heuristic proposes, best first: in its mode A, or in its fallback mode, whose engines take more graphs.
// Empty if cuDNN has nothing. device_properties: of the GPU, or null for the one of the graph's handle.
std::vector<EngineCandidate> engine_candidates(const OperationGraph& graph, bool fallback,
                                               const CudnnDescriptor* device_properties);
// Whether a candidate may compute this graph under these settings.
bool is_allowed(const EngineCandidate& candidate, const GraphKey& key, bool tf32, bool deterministic);

}  // namespace heddle::cuda
