#include "kernels/cuda/cudnn_graph.h"

#include <array>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/backend/math_settings.h"
#include "engine/device/device_runtime.h"
#include "engine/tensor/tensor.h"
#include "kernels/cuda/cudnn_builders.h"
#include "kernels/cuda/cudnn_plan_cache.h"
#include "kernels/cuda/hash_key.h"
#include "kernels/cuda/stopwatch.h"
#include "kernels/launch/check.h"
#include "kernels/launch/launch_log.h"
#include "kernels/launch/profile.h"

namespace heddle::cuda {
namespace {

// A graph and the settings that its plan was chosen under.
struct PlanKey {
  GraphKey graph;
  std::int64_t workspace_limit = 0;
  std::int32_t tf32 = 0, deterministic = 0, timed = 0, unused = 0;
};

std::string hexadecimal(const PlanKey& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : std::span(reinterpret_cast<const unsigned char*>(&key), sizeof key)) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// A plan that is ready to run.
struct Plan {
  CudnnDescriptor plan;
  CudnnDescriptor configuration;
  std::int64_t workspace_nbytes = 0;
};

// Null pointers where a plan could not be made.
struct Entry {
  std::optional<OperationGraph> graph;  // outlives its plan
  std::optional<Plan> plan;
};

// Makes the plan of an engine configuration, unless cuDNN cannot or it needs too much scratch.
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

// The plan that a file names; nothing if this cuDNN does not have it.
std::optional<Plan> restored(const StoredPlan& stored_plan, const OperationGraph& graph, cudnnHandle_t handle,
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

void execute(const Plan& plan, std::span<const GraphTensor> tensors, void* workspace, cudnnHandle_t handle) {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const GraphTensor& tensor : tensors) {
    ids.push_back(static_cast<std::int64_t>(tensor.role));
    pointers.push_back(const_cast<void*>(tensor.data));
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<std::int64_t>(pointers.size()),
           pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  check_cudnn(cudnnBackendExecute(handle, plan.plan.get(), pack.get()), "cudnnBackendExecute");
}

Tensor scratch(std::int64_t nbytes, Device device) {
  return nbytes == 0 ? Tensor() : Tensor::empty({nbytes}, DType::u8, device);
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  HEDDLE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

struct CudnnGraphs::State {
  explicit State(Device where) : device(where) {}
  ~State() {
    plans.clear();
    if (handle != nullptr) cudnnDestroy(handle);
  }

  void open() {
    if (handle != nullptr) return;
    check_cudnn(cudnnCreate(&handle), "cudnnCreate");
    cache.emplace(PlanCacheFile::default_folder(),
                  join_text(CudnnGraphs::version(), " ", runtime_for(device).description()));
  }

  Entry& entry(const PlanKey& key, std::span<const GraphTensor> tensors, cudaStream_t stream) {
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    open();
    check_cudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
    return plans.emplace(key, choose(key, tensors, stream)).first->second;
  }

  Entry choose(const PlanKey& key, std::span<const GraphTensor> tensors, cudaStream_t stream) {
    Entry entry;
    try {
      entry.graph.emplace(build_operation_graph(key.graph, handle));
    } catch (const NotSupported&) {
      return entry;
    }
    const std::string name = hexadecimal(key);
    if (const auto known = cache->find(name)) {
      entry.plan = restored(*known, *entry.graph, handle, key.workspace_limit);
      if (entry.plan) return entry;
    }
    const std::size_t wanted = key.timed != 0 ? kTimedPlans : 1;
    std::vector<Plan> candidates;
    for (const bool fallback : {false, true}) {
      if (fallback && !candidates.empty()) break;
      for (EngineCandidate& candidate : engine_candidates(*entry.graph, fallback, nullptr)) {
        if (candidates.size() == wanted) break;
        if (!is_allowed(candidate, key.graph, key.tf32 != 0, key.deterministic != 0)) continue;
        std::optional<Plan> plan = make_plan(std::move(candidate.configuration), handle, key.workspace_limit);
        if (plan) candidates.push_back(std::move(*plan));
      }
    }
    if (candidates.empty()) return entry;
    const std::size_t best = candidates.size() > 1 ? fastest(candidates, tensors, stream) : 0;
    entry.plan = std::move(candidates[best]);
    cache->store(name, stored(*entry.plan));
    return entry;
  }

  // Measures plans on copies of the tensors' memory, with whatever it holds: results do not matter. The first if there
  // is too little memory.
  std::size_t fastest(const std::vector<Plan>& candidates, std::span<const GraphTensor> tensors, cudaStream_t stream) {
    try {
      std::vector<GraphTensor> copies(tensors.begin(), tensors.end());
      std::vector<Tensor> memory;
      for (GraphTensor& copy : copies) {
        if (copy.nbytes > 0) {
          copy.data = memory.emplace_back(scratch(static_cast<std::int64_t>(copy.nbytes), device)).raw_data();
        }
      }
      CudaStopwatch stopwatch;
      const Stream on{device, stream};
      std::size_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        Tensor workspace = scratch(candidates[i].workspace_nbytes, device);
        execute(candidates[i], copies, workspace.mutable_raw_data(), handle);
        for (int repetition = 0; repetition < 3; ++repetition) {
          stopwatch.start(on);
          execute(candidates[i], copies, workspace.mutable_raw_data(), handle);
          const double seconds = stopwatch.stop(on);
          if (seconds < least) {
            least = seconds;
            best = i;
          }
        }
      }
      return best;
    } catch (const OutOfMemory&) {
      return 0;
    }
  }

  static constexpr std::size_t kTimedPlans = 8;
  Device device;
  std::mutex mutex;  // guards the rest
  cudnnHandle_t handle = nullptr;
  std::optional<PlanCacheFile> cache;
  std::unordered_map<PlanKey, Entry, BytesHash<PlanKey>, BytesEqual<PlanKey>> plans;
};

CudnnGraphs::CudnnGraphs(Device device) : state_(std::make_unique<State>(device)) {}
CudnnGraphs::~CudnnGraphs() = default;

std::string CudnnGraphs::version() {
  const std::size_t number = cudnnGetVersion();
  return join_text("cuDNN ", number / 10000, ".", number / 100 % 100, ".", number % 100);
}

bool CudnnGraphs::run(const char* name, const GraphKey& key, std::span<const GraphTensor> tensors,
                      cudaStream_t stream) {
  const std::lock_guard lock(state_->mutex);
  const MathSettings settings = math_settings();
  PlanKey plan_key{.graph = key,
                   .workspace_limit = static_cast<std::int64_t>(settings.workspace_limit_nbytes),
                   .tf32 = settings.f32_products == F32Products::tf32 ? 1 : 0,
                   .deterministic = settings.deterministic ? 1 : 0,
                   .timed = settings.time_algorithms && !is_capturing(stream) ? 1 : 0};
  std::exception_ptr out_of_memory;
  for (;;) {
    const Entry& entry = state_->entry(plan_key, tensors, stream);
    if (!entry.plan) {
      if (out_of_memory) std::rethrow_exception(out_of_memory);
      return false;
    }
    Tensor workspace;
    try {
      workspace = scratch(entry.plan->workspace_nbytes, state_->device);
    } catch (const OutOfMemory&) {
      out_of_memory = std::current_exception();
      plan_key.workspace_limit = entry.plan->workspace_nbytes - 1;
      plan_key.timed = 0;
      continue;
    }
    std::vector<Access> accesses;
    for (const GraphTensor& tensor : tensors) {
      accesses.push_back({tensor.data, tensor.nbytes, tensor.read, tensor.written});
    }
    accesses.push_back(writes_bytes(workspace.mutable_raw_data(), workspace.defined() ? workspace.nbytes() : 0));
    note_launch(name, accesses);
    const profile::Range range(name);
    check_cudnn(cudnnSetStream(state_->handle, stream), "cudnnSetStream");
    execute(*entry.plan, tensors, workspace.mutable_raw_data(), state_->handle);
    return true;
  }
}

}  // namespace heddle::cuda
