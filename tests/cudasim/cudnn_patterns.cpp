// Which operation graphs the simulated cuDNN has engines for, and what those engines are. It follows what cuDNN 9.19
// answers for an H200 (sm_90): patterns without an engine there have none here. Numbers of engines, workspace sizes and
// notes are like the real ones in kind, not in value.
#include <algorithm>
#include <map>

#include "tests/cudasim/cudnn_descriptor.h"
#include "tests/cudasim/schedule.h"

namespace cudasim {
namespace {

enum class Pattern { none, convolution, filter_gradient, norm, pooling, product, pointwise };

bool is_convolution(const Operation& operation) {
  return operation.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         operation.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         operation.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}
bool is_norm(const Operation& operation) {
  return operation.kind == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR ||
         operation.kind == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR;
}
bool is_pooling(const Operation& operation) {
  return operation.kind == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR ||
         operation.kind == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR;
}
bool is_pointwise(const Operation& operation) { return operation.kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR; }
bool is_core(const Operation& operation) {
  return is_convolution(operation) || is_norm(operation) || is_pooling(operation) ||
         operation.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
}

bool is_16_bit(ElementType type) { return type == ElementType::float16 || type == ElementType::bfloat16; }
bool is_float(ElementType type) { return is_16_bit(type) || type == ElementType::float32; }

// Whether neighbours in the channel dimension are neighbours in memory.
bool is_channels_last(const TensorInfo& tensor) { return tensor.dims.size() < 2 || tensor.strides[1] == 1; }

bool same_tensor(const TensorInfo& a, const TensorInfo& b) {
  return a.type == b.type && a.dims == b.dims && a.strides == b.strides && a.is_virtual == b.is_virtual &&
         a.by_value == b.by_value;
}

// Every id names one tensor, virtual tensors are made inside the graph, values by address are scalars that are read.
bool has_sound_tensors(const OperationGraph& graph) {
  std::map<std::int64_t, const TensorInfo*> seen;
  std::map<std::int64_t, bool> written;
  for (const Operation& operation : graph.operations) {
    for (const Operation::Operand& operand : operation.operands) {
      const TensorInfo& tensor = operand.tensor;
      const auto [place, is_new] = seen.emplace(tensor.unique_id, &tensor);
      if (!is_new && !same_tensor(*place->second, tensor)) return false;
      if (tensor.is_virtual && !operand.output && !written[tensor.unique_id]) return false;
      if (tensor.by_value && (operand.output || tensor.numel() != 1)) return false;
    }
    for (const Operation::Operand& operand : operation.operands) {
      if (operand.output) written[operand.tensor.unique_id] = true;
    }
  }
  return true;
}

bool broadcasts_to(const TensorInfo& from, const TensorInfo& to) {
  if (from.dims.size() != to.dims.size()) return false;
  for (std::size_t i = 0; i < from.dims.size(); ++i) {
    if (from.dims[i] != 1 && from.dims[i] != to.dims[i]) return false;
  }
  return true;
}

bool has_sound_pointwise_shapes(const Operation& operation) {
  const Operation::Operand& output = *std::find_if(operation.operands.begin(), operation.operands.end(),
                                                   [](const auto& operand) { return operand.output; });
  return std::all_of(operation.operands.begin(), operation.operands.end(), [&](const auto& operand) {
    return operand.output || broadcasts_to(operand.tensor, output.tensor);
  });
}

bool is_supported_mode(const Operation& operation) {
  switch (operation.pointwise.mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_ADD_SQUARE:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_MAX:
    case CUDNN_POINTWISE_MIN:
    case CUDNN_POINTWISE_ABS:
    case CUDNN_POINTWISE_NEG:
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_SQRT:
    case CUDNN_POINTWISE_RSQRT:
    case CUDNN_POINTWISE_RECIPROCAL:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_RELU_FWD:
    case CUDNN_POINTWISE_RELU_BWD:
    case CUDNN_POINTWISE_CMP_EQ:
    case CUDNN_POINTWISE_CMP_NEQ:
    case CUDNN_POINTWISE_CMP_GT:
    case CUDNN_POINTWISE_CMP_GE:
    case CUDNN_POINTWISE_CMP_LT:
    case CUDNN_POINTWISE_CMP_LE:
    case CUDNN_POINTWISE_BINARY_SELECT: return true;
    default: return false;
  }
}

// Operations around the core one, by their place in the order of execution.
struct Parts {
  const Operation* core = nullptr;
  std::vector<const Operation*> before;
  std::vector<const Operation*> after;
};

Parts parts_of(const OperationGraph& graph) {
  Parts parts;
  for (const Operation& operation : graph.operations) {
    if (is_core(operation)) {
      parts.core = &operation;
    } else {
      (parts.core == nullptr ? parts.before : parts.after).push_back(&operation);
    }
  }
  return parts;
}

bool all_pointwise(const std::vector<const Operation*>& operations) {
  return std::all_of(operations.begin(), operations.end(), [](const Operation* o) { return is_pointwise(*o); });
}

bool supports_convolution(const Parts& parts) {
  const Operation& core = *parts.core;
  const bool forward = core.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  for (const Operation::Operand& operand : core.operands) {
    if (!is_float(operand.tensor.type) || operand.tensor.dims.size() != 4) return false;
  }
  // Statistics may follow the forward convolution; only then may something precede it.
  const bool statistics =
      !parts.after.empty() && parts.after.back()->kind == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
  if (!parts.before.empty() && !(forward && statistics)) return false;
  std::vector<const Operation*> after = parts.after;
  if (statistics && forward) after.pop_back();
  return all_pointwise(parts.before) && all_pointwise(after);
}

bool supports_filter_gradient(const Parts& parts) {
  const TensorInfo& x = *parts.core->find(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
  const TensorInfo& dy = *parts.core->find(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  const TensorInfo& dw = *parts.core->find(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
  if (!parts.after.empty() || x.dims.size() != 4) return false;
  if (x.type != dy.type || !is_float(x.type)) return false;
  // Nothing makes a float gradient from 16-bit data, and only fp16 has scale, bias and ReLU in front.
  if (dw.type != x.type) return false;
  return parts.before.empty() || (x.type == ElementType::float16 && all_pointwise(parts.before));
}

// Per-channel statistics and parameters of x.
bool is_channel_vector(const TensorInfo& tensor, const TensorInfo& x) {
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] != (i == 1 ? x.dims[1] : 1)) return false;
  }
  return tensor.dims.size() == x.dims.size() && tensor.type == ElementType::float32;
}

bool has_mode(const Operation& operation, cudnnPointwiseMode_t mode) {
  return is_pointwise(operation) && operation.pointwise.mode == mode;
}

// [add] [ReLU [mask out]].
bool may_follow_norm(std::vector<const Operation*> after) {
  if (!after.empty() && has_mode(*after.front(), CUDNN_POINTWISE_ADD)) after.erase(after.begin());
  if (after.empty()) return true;
  if (!has_mode(*after.front(), CUDNN_POINTWISE_RELU_FWD)) return false;
  after.erase(after.begin());
  if (after.empty()) return true;
  return after.size() == 1 && has_mode(*after.front(), CUDNN_POINTWISE_CMP_GT) &&
         after.front()->find(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)->type == ElementType::boolean;
}

// Nothing, or the gradient multiplied by a mask of bits.
bool may_precede_norm_gradient(const std::vector<const Operation*>& before) {
  if (before.empty()) return true;
  if (before.size() != 1 || !has_mode(*before.front(), CUDNN_POINTWISE_MUL)) return false;
  return before.front()->find(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)->type == ElementType::boolean ||
         before.front()->find(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)->type == ElementType::boolean;
}

bool supports_norm(const Parts& parts) {
  const Operation& core = *parts.core;
  const bool forward = core.kind == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR;
  const TensorInfo& x = *core.find(forward ? CUDNN_ATTR_OPERATION_NORM_FWD_XDESC : CUDNN_ATTR_OPERATION_NORM_BWD_XDESC);
  if (x.dims.size() != 4 || !is_float(x.type) || !is_channels_last(x)) return false;
  if (x.dims[1] % (is_16_bit(x.type) ? 8 : 4) != 0) return false;
  for (const Operation::Operand& operand : core.operands) {
    const TensorInfo& tensor = operand.tensor;
    if (tensor.by_value || tensor.dims == x.dims) continue;
    if (!is_channel_vector(tensor, x) && tensor.numel() != 1) return false;
  }
  if (forward) return parts.before.empty() && may_follow_norm(parts.after);
  return parts.after.empty() && may_precede_norm_gradient(parts.before);
}

// The gradient of max pooling goes by the indices that the forward pass wrote.
bool supports_pooling(const Parts& parts) {
  const Operation& core = *parts.core;
  const bool needs_index =
      core.kind == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR && core.resample.mode == CUDNN_RESAMPLE_MAXPOOL;
  if (needs_index && core.find(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC) == nullptr) return false;
  return parts.after.empty() && all_pointwise(parts.before) && core.resample.window.size.size() == 2;
}

Pattern pattern_of(const OperationGraph& graph) {
  if (!has_sound_tensors(graph)) return Pattern::none;
  int cores = 0;
  for (const Operation& operation : graph.operations) {
    cores += is_core(operation);
    if (is_pointwise(operation) && !(has_sound_pointwise_shapes(operation) && is_supported_mode(operation))) {
      return Pattern::none;
    }
  }
  if (cores > 1) return Pattern::none;
  const Parts parts = parts_of(graph);
  if (cores == 0) return graph.operations.size() <= 16 ? Pattern::pointwise : Pattern::none;
  const Operation& core = *parts.core;
  const auto if_supported = [](bool supported, Pattern pattern) { return supported ? pattern : Pattern::none; };
  if (core.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
    return if_supported(supports_filter_gradient(parts), Pattern::filter_gradient);
  }
  if (is_convolution(core)) return if_supported(supports_convolution(parts), Pattern::convolution);
  if (is_norm(core)) return if_supported(supports_norm(parts), Pattern::norm);
  if (is_pooling(core)) return if_supported(supports_pooling(parts), Pattern::pooling);
  return if_supported(parts.before.empty() && all_pointwise(parts.after), Pattern::product);
}

// An odd number of bytes that grows with the graph's tensors, so that no two shapes need the same.
std::int64_t odd_nbytes(const OperationGraph& graph) {
  std::int64_t nbytes = 0;
  for (const Operation& operation : graph.operations) {
    for (const Operation::Operand& operand : operation.operands) nbytes += operand.tensor.numel();
  }
  return 2 * nbytes + 1;
}

using Configurations = std::vector<EngineConfiguration>;

// Products of matrices and convolutions: the fast engines come first and use tensor cores, which for float tensors
// means TF32; those that do not come last, or in the fallback list only.
Configurations product_configurations(const OperationGraph& graph, bool fallback, bool single_precision,
                                      bool has_nondeterministic) {
  const std::int64_t large = odd_nbytes(graph);
  const std::vector<cudnnBackendNumericalNote_t> tensor_core = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
  const auto fast = [&](std::int64_t index, std::int64_t choice, std::int64_t nbytes) {
    return EngineConfiguration{.global_index = index,
                               .kernel_choice = choice,
                               .workspace_nbytes = nbytes,
                               .numerical_notes = tensor_core,
                               .tf32 = single_precision};
  };
  const EngineConfiguration nondeterministic{
      .global_index = 20, .workspace_nbytes = 0, .numerical_notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}};
  Configurations list;
  if (!fallback) {
    list = {fast(67, 0, 131), fast(67, 1, 131), fast(46, 0, large)};
    list[1].builds = false;
    if (has_nondeterministic && policy().nondeterministic_first) list.insert(list.begin(), nondeterministic);
  }
  list.push_back({.global_index = 1, .workspace_nbytes = fallback ? large + 2 : 2 * large + 1});
  if (fallback && has_nondeterministic) list.push_back(nondeterministic);
  if (fallback) {
    list.push_back(
        {.global_index = 0, .workspace_nbytes = 0, .numerical_notes = {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}});
  }
  return list;
}

// Engines that cuDNN compiles when a plan is made. They carry the tensor core note whatever they compute.
Configurations compiled_configurations(const OperationGraph& graph, bool fallback, bool needs_workspace) {
  const EngineConfiguration engine{
      .global_index = 4,
      .workspace_nbytes = needs_workspace ? odd_nbytes(graph) : 0,
      .numerical_notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
      .behavior_notes = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API}};
  Configurations list(fallback ? 1 : 3, engine);
  for (std::size_t i = 0; i < list.size(); ++i)
    list[i].kernel_choice = static_cast<std::int64_t>(i) + (fallback ? 7 : 0);
  if (list.size() > 1) {
    list[1].builds = false;
    list[2].workspace_nbytes = 259;
  }
  return list;
}

bool is_single_precision(const OperationGraph& graph) {
  for (const Operation& operation : graph.operations) {
    if (!is_core(operation)) continue;
    for (const Operation::Operand& operand : operation.operands) {
      if (!operand.output && !operand.tensor.is_virtual && operand.tensor.type != ElementType::float32) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<EngineConfiguration> configurations_of(const OperationGraph& graph, cudnnBackendHeurMode_t mode) {
  const bool fallback = mode == CUDNN_HEUR_MODE_FALLBACK;
  const Pattern pattern = pattern_of(graph);
  switch (pattern) {
    case Pattern::none: return {};
    case Pattern::convolution:
    case Pattern::filter_gradient:
    case Pattern::product:
      return product_configurations(graph, fallback, is_single_precision(graph), pattern == Pattern::filter_gradient);
    case Pattern::norm: return compiled_configurations(graph, fallback, true);
    case Pattern::pooling:
    case Pattern::pointwise: return compiled_configurations(graph, fallback, false);
  }
  return {};
}

}  // namespace cudasim
