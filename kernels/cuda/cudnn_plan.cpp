#include "kernels/cuda/cudnn_plan.h"

#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "kernels/launch/check.h"

namespace heddle::cuda {
namespace {

std::optional<Plan> restore(const StoredPlan& stored_plan, const OperationGraph& graph, cudnnHandle_t handle,
                            std::int64_t workspace_limit) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.graph);
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, stored_plan.engine);
  if (engine.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  std::vector<CudnnDescriptor> choices;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const auto& [type, value] : stored_plan.settings) {
    CudnnDescriptor& choice = choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    choice.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(type));
    choice.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    if (choice.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
    handles.push_back(choice.get());
  }
  CudnnDescriptor configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  configuration.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!handles.empty()) {
    configuration.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      static_cast<std::int64_t>(handles.size()), handles.data());
  }
  if (configuration.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  return make_plan(std::move(configuration), handle, workspace_limit);
}

}  // namespace

std::optional<Plan> make_plan(CudnnDescriptor configuration, cudnnHandle_t handle, std::int64_t workspace_limit) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  const auto nbytes = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
  if (nbytes > workspace_limit) return {};
  return Plan{std::move(plan), std::move(configuration), nbytes};
}

StoredPlan stored(const Plan& plan) {
  const auto engines = plan.configuration.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  StoredPlan result{.engine = engines.at(0).get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64),
                    .settings = {}};
  for (const CudnnDescriptor& choice :
       plan.configuration.get_descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)) {
    result.settings.emplace_back(
        choice.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
        choice.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  }
  return result;
}

std::optional<Plan> restored(const StoredPlan& stored_plan, const OperationGraph& graph, cudnnHandle_t handle,
                             std::int64_t workspace_limit) {
  try {
    return restore(stored_plan, graph, handle, workspace_limit);
  } catch (const Error&) {
    // A number in the file that cuDNN does not take.
    return {};
  }
}

VariantPack::VariantPack(std::span<const GraphTensor> tensors, void* workspace)
    : pack_(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const GraphTensor& tensor : tensors) {
    ids.push_back(static_cast<std::int64_t>(tensor.role));
    pointers.push_back(const_cast<void*>(tensor.data));
  }
  pack_.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack_.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<std::int64_t>(pointers.size()),
            pointers.data());
  pack_.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack_.finalize();
}

bool is_recorded(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  HEDDLE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

bool execute(const Plan& plan, const VariantPack& pack, cudnnHandle_t handle, cudaStream_t stream,
             Repeatable repeatable) {
  const cudnnStatus_t status = cudnnBackendExecute(handle, plan.plan.get(), pack.get());
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return true;
  // What cuDNN has no support for it has not begun.
  const bool is_spoilt = repeatable == Repeatable::no && !is_not_supported(status);
  if (is_spoilt || is_recorded(stream)) check_cudnn(status, "cudnnBackendExecute");
  // An error that the failed call left to be asked for is taken off; one of the GPU comes back with every call.
  cudaGetLastError();
  const cudaError_t of_gpu = cudaStreamQuery(stream);
  if (of_gpu != cudaSuccess && of_gpu != cudaErrorNotReady) check_cudnn(status, "cudnnBackendExecute");
  cudaGetLastError();
  return false;
}

}  // namespace heddle::cuda
