// The simulated cuDNN runs an execution plan: looks up the variant pack's memory, queues one library call, and
// interprets the operation graph when that call runs.
#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "tests/cudasim/cudnn_compute.h"
#include "tests/cudasim/cudnn_descriptor.h"
#include "tests/cudasim/internal.h"

namespace cudasim {
namespace {

// Everything that the queued call needs; it owns all of it, so that a captured call can run again.
struct Call {
  std::shared_ptr<const OperationGraph> graph;
  std::map<std::int64_t, const void*> pointers;
  std::map<std::int64_t, double> constants;
  ComputeOptions options;
  void* workspace = nullptr;
  std::size_t workspace_nbytes = 0;
};

std::size_t nbytes_of(const TensorInfo& tensor) { return bytes_of(tensor.type, tensor.extent()); }

bool overlap(const void* a, std::size_t a_nbytes, const void* b, std::size_t b_nbytes) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a), b_begin = reinterpret_cast<std::uintptr_t>(b);
  return a_begin < b_begin + b_nbytes && b_begin < a_begin + a_nbytes;
}

// Whether the operation reads neighbours of the element that it writes, so that it cannot work in place.
bool reads_neighbours(const Operation& operation) {
  switch (operation.kind) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR: return false;
    default: return true;
  }
}

// On hardware the result would depend on the order of the threads.
void check_overlaps(const Call& call) {
  for (const Operation& operation : call.graph->operations) {
    if (!reads_neighbours(operation)) continue;
    for (const Operation::Operand& output : operation.operands) {
      const auto written = call.pointers.find(output.tensor.unique_id);
      if (!output.output || written == call.pointers.end()) continue;
      for (const Operation::Operand& input : operation.operands) {
        const auto read = call.pointers.find(input.tensor.unique_id);
        if (input.output || read == call.pointers.end()) continue;
        if (overlap(written->second, nbytes_of(output.tensor), read->second, nbytes_of(input.tensor))) {
          die("cudnnBackendExecute: output %lld overlaps input %lld of a convolution, pooling, product or reduction",
              static_cast<long long>(output.tensor.unique_id), static_cast<long long>(input.tensor.unique_id));
        }
      }
    }
  }
}

std::vector<Access> accesses_of(const Call& call) {
  std::vector<Access> accesses;
  std::set<std::int64_t> written, listed;
  for (const Operation& operation : call.graph->operations) {
    for (const Operation::Operand& operand : operation.operands) {
      const std::int64_t id = operand.tensor.unique_id;
      const auto pointer = call.pointers.find(id);
      if (pointer == call.pointers.end()) continue;
      const bool reads = operand.output ? operation.beta != 0 : written.count(id) == 0;
      if (reads && listed.insert(id).second) accesses.push_back({pointer->second, nbytes_of(operand.tensor), false});
    }
    for (const Operation::Operand& operand : operation.operands) {
      const std::int64_t id = operand.tensor.unique_id;
      const auto pointer = call.pointers.find(id);
      if (!operand.output || pointer == call.pointers.end() || !written.insert(id).second) continue;
      accesses.push_back({pointer->second, nbytes_of(operand.tensor), true});
    }
  }
  if (call.workspace_nbytes != 0) accesses.push_back({call.workspace, call.workspace_nbytes, true});
  return accesses;
}

void run(const Call& call) {
  if (call.workspace_nbytes != 0) {
    std::memset(host_view_bytes(call.workspace, call.workspace_nbytes, true), 0xff, call.workspace_nbytes);
  }
  TensorTable tensors([&](const TensorInfo& tensor, bool write) {
    return host_view_bytes(call.pointers.at(tensor.unique_id), nbytes_of(tensor), write);
  });
  for (const auto& [id, value] : call.constants) tensors.put_constant(id, value);
  for (const Operation& operation : call.graph->operations) compute_operation(operation, call.options, tensors);
}

cudnnStatus_t find_memory(const TensorInfo& tensor, const std::map<std::int64_t, const void*>& pack, Call& call) {
  const std::string name = "tensor " + std::to_string(tensor.unique_id);
  const auto found = pack.find(tensor.unique_id);
  if (found == pack.end()) return cudnn_failure(CUDNN_STATUS_BAD_PARAM, name + " is not in the variant pack");
  const void* pointer = found->second;
  if (pointer == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, name + " is at a null pointer");
  if (tensor.by_value) {
    if (is_device_pointer(pointer)) {
      die("cudnnBackendExecute: %s is passed by value, its pointer must be one of host memory", name.c_str());
    }
    double value = 0;
    read_elements(pointer, {.type = tensor.type, .n = 1}, &value);
    call.constants[tensor.unique_id] = value;
    return CUDNN_STATUS_SUCCESS;
  }
  if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(tensor.alignment) != 0) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                         name + " is not aligned to " + std::to_string(tensor.alignment) + " bytes");
  }
  call.pointers[tensor.unique_id] = pointer;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t prepare(const Descriptor& plan, const Descriptor& pack, Call& call) {
  std::map<std::int64_t, const void*> pointers;
  if (pack.has(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)) {
    const std::vector<std::int64_t> ids = pack.integers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto* pointer = pack.get<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, static_cast<std::int64_t>(i));
      if (!pointers.emplace(ids[i], pointer).second) {
        return cudnn_failure(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                             "the variant pack has tensor " + std::to_string(ids[i]) + " twice");
      }
    }
  }
  call.graph = plan.graph;
  for (const Operation& operation : plan.graph->operations) {
    for (const Operation::Operand& operand : operation.operands) {
      if (operand.tensor.is_virtual) continue;
      if (const cudnnStatus_t status = find_memory(operand.tensor, pointers, call)) return status;
    }
  }
  const EngineConfiguration& configuration = plan.configurations.front();
  call.options.tf32 = configuration.tf32;
  for (const cudnnBackendNumericalNote_t note : configuration.numerical_notes) {
    call.options.nondeterministic |= note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  }
  if (configuration.workspace_nbytes != 0) {
    call.workspace = pack.get_or<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
    call.workspace_nbytes = static_cast<std::size_t>(configuration.workspace_nbytes);
    if (call.workspace == nullptr) {
      return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan needs a workspace");
    }
    if (reinterpret_cast<std::uintptr_t>(call.workspace) % 16 != 0) {
      return cudnn_failure(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "the workspace is not aligned to 16 bytes");
    }
  }
  check_overlaps(call);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace cudasim

using namespace cudasim;

extern "C" CUDASIM_API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_handle,
                                                         cudnnBackendDescriptor_t pack_handle) {
  const Lock lock;
  if (const int status = injected_library("cudnnBackendExecute")) return static_cast<cudnnStatus_t>(status);
  const CudnnHandleInfo info = find_cudnn_handle(handle);
  if (info.device < 0) return cudnn_failure(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
  if (info.device != current_device()) {
    return cudnn_failure(CUDNN_STATUS_EXECUTION_FAILED, "the handle belongs to another device than the current one");
  }
  const Descriptor* plan = find_cudnn_descriptor(plan_handle);
  const Descriptor* pack = find_cudnn_descriptor(pack_handle);
  if (plan == nullptr || pack == nullptr) return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no plan or pack");
  if (plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "not an execution plan and a variant pack");
  }
  if (!plan->finalized || !pack->finalized) {
    return cudnn_failure(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the pack is not finalized");
  }
  Call call;
  if (const cudnnStatus_t status = prepare(*plan, *pack, call)) return status;
  const cudaError_t error =
      enqueue(info.stream, "cudnnBackendExecute", OpKind::library_call, accesses_of(call), [call] { run(call); });
  if (error == cudaSuccess) return CUDNN_STATUS_SUCCESS;
  return cudnn_failure(CUDNN_STATUS_EXECUTION_FAILED_CUDART,
                       std::string("the CUDA runtime refused: ") + std::to_string(static_cast<int>(error)));
}
