// Finalizing the simulated cuDNN's heuristics, engines, engine configurations and execution plans.
#include <algorithm>

#include "tests/cudasim/cudnn_descriptor.h"

namespace cudasim {
namespace {

// The configurations of all modes, those of mode A first.
std::vector<EngineConfiguration> all_configurations(const OperationGraph& graph) {
  std::vector<EngineConfiguration> all = configurations_of(graph, CUDNN_HEUR_MODE_A);
  for (EngineConfiguration& configuration : configurations_of(graph, CUDNN_HEUR_MODE_FALLBACK)) {
    all.push_back(std::move(configuration));
  }
  return all;
}

cudnnStatus_t finalize_heuristics(Descriptor& descriptor) {
  const Descriptor& graph = *descriptor.child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  if (graph.graph == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "no operation graph");
  const auto mode = descriptor.get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  if (mode < CUDNN_HEUR_MODE_INSTANT || mode >= CUDNN_HEUR_MODES_COUNT) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM, "unknown mode of the heuristics");
  }
  descriptor.graph = graph.graph;
  // No engine is no failure: the list of results is empty.
  descriptor.configurations = configurations_of(*graph.graph, mode);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_chosen_engine(Descriptor& descriptor) {
  const Descriptor& graph = *descriptor.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  if (graph.graph == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "no operation graph");
  const auto index = descriptor.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  for (EngineConfiguration& configuration : all_configurations(*graph.graph)) {
    if (configuration.global_index != index) continue;
    descriptor.graph = graph.graph;
    descriptor.configurations = {std::move(configuration)};
    return CUDNN_STATUS_SUCCESS;
  }
  return cudnn_failure(CUDNN_STATUS_NOT_SUPPORTED, "the graph has no engine " + std::to_string(index));
}

cudnnStatus_t finalize_configuration(Descriptor& descriptor) {
  const Descriptor& engine = *descriptor.child(CUDNN_ATTR_ENGINECFG_ENGINE);
  if (engine.graph == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "no engine");
  descriptor.graph = engine.graph;
  descriptor.configurations = engine.configurations;
  const auto choices = descriptor.children.find(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
  if (choices == descriptor.children.end()) return CUDNN_STATUS_SUCCESS;
  for (const auto& choice : choices->second) {
    const auto type = choice->get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
    if (type != CUDNN_KNOB_TYPE_KERNEL_CFG) {
      return cudnn_failure(CUDNN_STATUS_NOT_SUPPORTED, "the engine has no knob " + std::to_string(type));
    }
    const auto value = choice->get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    const std::vector<EngineConfiguration> all = all_configurations(*descriptor.graph);
    const auto chosen = std::find_if(all.begin(), all.end(), [&](const EngineConfiguration& candidate) {
      return candidate.global_index == engine.configurations.front().global_index && candidate.kernel_choice == value;
    });
    if (chosen == all.end()) {
      return cudnn_failure(CUDNN_STATUS_NOT_SUPPORTED, "the engine has no kernel " + std::to_string(value));
    }
    descriptor.configurations = {*chosen};
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(Descriptor& descriptor) {
  const Descriptor& configuration = *descriptor.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (configuration.graph == nullptr || configuration.type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "no engine configuration");
  }
  if (descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) &&
      find_cudnn_handle(descriptor.get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)).device < 0) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM, "the plan's handle is none");
  }
  if (!configuration.configurations.front().builds) {
    return cudnn_failure(CUDNN_STATUS_NOT_SUPPORTED, "the engine has no kernel for this configuration after all");
  }
  descriptor.graph = configuration.graph;
  descriptor.configurations = configuration.configurations;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t finalize_engine(Descriptor& descriptor) {
  switch (descriptor.type) {
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return finalize_heuristics(descriptor);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return finalize_chosen_engine(descriptor);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return finalize_configuration(descriptor);
    default: return finalize_plan(descriptor);
  }
}

}  // namespace cudasim
