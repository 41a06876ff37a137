#include "kernels/cuda/cudnn_graph.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/backend/math_settings.h"
#include "engine/device/device_runtime.h"
#include "engine/tensor/tensor.h"
#include "kernels/cuda/cudnn_plan.h"
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

// What is known of a graph.
struct Entry {
  std::optional<OperationGraph> graph;  // outlives its plans; nothing if cuDNN has no such graph
  std::deque<Plan> plans;               // made and not failed, best first
  std::deque<EngineCandidate> untried;  // best first
  int lists = 0;                        // of candidates, asked for so far: the heuristic's, then the fallback
  bool measured = false;                // the order of the plans
  bool proven = false;                  // the first plan has run
  bool stored = false;                  // the first plan is the file's
};

Tensor scratch(std::int64_t nbytes, Device device) {
  return nbytes == 0 ? Tensor() : Tensor::empty({nbytes}, DType::u8, device);
}

Repeatable is_repeatable(std::span<const GraphTensor> tensors) {
  for (const GraphTensor& written : tensors) {
    for (const GraphTensor& read : tensors) {
      if (written.written && read.read && written.data == read.data) return Repeatable::no;
    }
  }
  return Repeatable::yes;
}

// Fresh memory in the tensors' places, with whatever it holds: results do not matter, only places in windows must
// exist.
struct Copies {
  Copies(std::span<const GraphTensor> originals, Stream stream) : tensors(originals.begin(), originals.end()) {
    for (GraphTensor& copy : tensors) {
      if (copy.nbytes == 0) continue;
      Tensor& fresh = memory.emplace_back(scratch(static_cast<std::int64_t>(copy.nbytes), stream.device));
      if (copy.role == GraphRole::index) {
        HEDDLE_CUDA_CHECK(
            cudaMemsetAsync(fresh.mutable_raw_data(), 0, copy.nbytes, static_cast<cudaStream_t>(stream.handle)));
      }
      copy.data = fresh.raw_data();
    }
  }
  std::vector<GraphTensor> tensors;
  std::vector<Tensor> memory;
};

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

  // The entry of a graph. A new one has the plan that the file names, if it names one.
  Entry& entry(const PlanKey& key) {
    const auto found = plans.find(key);
    if (found != plans.end()) return found->second;
    Entry entry;
    try {
      entry.graph.emplace(build_operation_graph(key.graph, handle));
    } catch (const NotSupported&) {
      return plans.emplace(key, std::move(entry)).first->second;
    }
    if (const auto known = cache->find(hexadecimal(key))) {
      if (auto plan = restored(*known, *entry.graph, handle, key.workspace_limit)) {
        entry.plans.push_back(std::move(*plan));
        entry.stored = true;
      }
    }
    return plans.emplace(key, std::move(entry)).first->second;
  }

  // The best plan that has not failed; null if there is none.
  const Plan* best(Entry& entry, const PlanKey& key, std::span<const GraphTensor> tensors, cudaStream_t stream) {
    const bool is_new = entry.lists == 0 && entry.plans.empty();
    if (entry.plans.empty() && !add_plan(entry, key)) return nullptr;
    if (is_new && key.timed != 0 && !is_recorded(stream)) {
      while (entry.plans.size() < kTimedPlans && !entry.untried.empty() && add_plan(entry, key)) {
      }
      measure(entry, tensors, stream);
      if (entry.plans.empty()) add_plan(entry, key);
    }
    return entry.plans.empty() ? nullptr : &entry.plans.front();
  }

  // Makes the next of the plans that cuDNN proposes. False if there is no other.
  bool add_plan(Entry& entry, const PlanKey& key) {
    if (!entry.graph) return false;
    for (;;) {
      if (entry.untried.empty()) {
        if (entry.lists == 2) return false;
        for (EngineCandidate& candidate : engine_candidates(*entry.graph, entry.lists++ == 1, nullptr)) {
          entry.untried.push_back(std::move(candidate));
        }
        continue;
      }
      EngineCandidate candidate = std::move(entry.untried.front());
      entry.untried.pop_front();
      if (!is_allowed(candidate, key.graph, key.tf32 != 0, key.deterministic != 0)) continue;
      if (auto plan = make_plan(std::move(candidate.configuration), handle, key.workspace_limit)) {
        entry.plans.push_back(std::move(*plan));
        return true;
      }
    }
  }

  // Orders the plans by the time that they take, and leaves out those that fail. They stay as they are if there is too
  // little memory.
  void measure(Entry& entry, std::span<const GraphTensor> tensors, cudaStream_t stream) {
    try {
      const Copies copies(tensors, {device, stream});
      CudaStopwatch stopwatch;
      std::vector<std::pair<double, std::size_t>> order;
      for (std::size_t i = 0; i < entry.plans.size(); ++i) {
        Tensor workspace = scratch(entry.plans[i].workspace_nbytes, device);
        const VariantPack pack(copies.tensors, workspace.mutable_raw_data());
        const auto seconds = seconds_of(entry.plans[i], pack, stopwatch, stream);
        if (seconds) order.emplace_back(*seconds, i);
      }
      std::sort(order.begin(), order.end());
      std::deque<Plan> sorted;
      for (const auto& place : order) sorted.push_back(std::move(entry.plans[place.second]));
      entry.plans = std::move(sorted);
      entry.measured = true;
    } catch (const OutOfMemory&) {
    }
  }

  // Seconds of one run. Several are queued between the events, so that the GPU does not wait for the host in between.
  // Nothing if the plan fails.
  std::optional<double> seconds_of(const Plan& plan, const VariantPack& pack, CudaStopwatch& stopwatch,
                                   cudaStream_t stream) {
    const Stream on{device, stream};
    // The first run loads the kernels.
    if (!execute(plan, pack, handle, stream)) return {};
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 3; ++round) {
      stopwatch.start(on);
      for (int run = 0; run < kTimedRuns; ++run) {
        if (!execute(plan, pack, handle, stream)) return {};
      }
      least = std::min(least, stopwatch.stop(on) / kTimedRuns);
    }
    return least;
  }

  // Whether a plan that has not run yet can: on other memory, where it does not matter if a run that fails has changed
  // what the next one needs. Also true if there is too little memory to tell.
  bool runs_on_copies(const Plan& plan, std::span<const GraphTensor> tensors, cudaStream_t stream) {
    try {
      const Copies copies(tensors, {device, stream});
      Tensor workspace = scratch(plan.workspace_nbytes, device);
      return execute(plan, VariantPack(copies.tensors, workspace.mutable_raw_data()), handle, stream);
    } catch (const OutOfMemory&) {
      return true;
    }
  }

  // After a run of an entry's best plan: it stays, the others go, and the file learns about it.
  void keep(Entry& entry, const PlanKey& key) noexcept {
    if (entry.proven) return;
    entry.proven = true;
    entry.untried.clear();
    while (entry.plans.size() > 1) entry.plans.pop_back();
    if (entry.stored || (key.timed != 0 && !entry.measured)) return;
    entry.stored = true;
    try {
      cache->store(hexadecimal(key), stored(entry.plans.front()));
    } catch (const std::exception&) {
      // The plan is good all the same; the next process searches again.
    }
  }

  static constexpr std::size_t kTimedPlans = 8;
  static constexpr int kTimedRuns = 5;
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
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  const MathSettings settings = math_settings();
  // A recording cannot measure, but what was measured before holds for it too.
  PlanKey plan_key{.graph = key,
                   .workspace_limit = static_cast<std::int64_t>(settings.workspace_limit_nbytes),
                   .tf32 = settings.f32_products == F32Products::tf32 ? 1 : 0,
                   .deterministic = settings.deterministic ? 1 : 0,
                   .timed = settings.time_algorithms ? 1 : 0};
  state.open();
  check_cudnn(cudnnSetStream(state.handle, stream), "cudnnSetStream");
  const Repeatable repeatable = is_repeatable(tensors);
  std::exception_ptr out_of_memory;
  for (;;) {
    Entry& entry = state.entry(plan_key);
    const Plan* const plan = state.best(entry, plan_key, tensors, stream);
    if (plan == nullptr) {
      if (out_of_memory) std::rethrow_exception(out_of_memory);
      return false;
    }
    Tensor workspace;
    try {
      workspace = scratch(plan->workspace_nbytes, state.device);
    } catch (const OutOfMemory&) {
      out_of_memory = std::current_exception();
      plan_key.workspace_limit = plan->workspace_nbytes - 1;
      plan_key.timed = 0;
      continue;
    }
    if (repeatable == Repeatable::yes || entry.proven || entry.measured || is_recorded(stream) ||
        state.runs_on_copies(*plan, tensors, stream)) {
      std::vector<Access> accesses;
      for (const GraphTensor& tensor : tensors) {
        accesses.push_back({tensor.data, tensor.nbytes, tensor.read, tensor.written});
      }
      accesses.push_back(workspace_bytes(workspace.mutable_raw_data(), workspace.defined() ? workspace.nbytes() : 0));
      note_launch(name, accesses);
      const profile::Range range(name);
      if (execute(*plan, VariantPack(tensors, workspace.mutable_raw_data()), state.handle, stream, repeatable)) {
        state.keep(entry, plan_key);
        return true;
      }
    }
    // The next one. The file may name the one that failed, until another has run.
    entry.plans.pop_front();
    entry.proven = entry.stored = false;
  }
}

}  // namespace heddle::cuda
