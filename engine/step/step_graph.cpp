#include "engine/step/step_graph.h"

#include <algorithm>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/core/error.h"

namespace heddle::step {

StepGraph::StepGraph(Device device, const StepGraphOptions& options)
    : runtime_(runtime_for(device)), options_(options) {
  HEDDLE_CHECK(options.max_keys >= 1, "StepGraph: max_keys is ", options.max_keys, ", at least 1 is needed");
  HEDDLE_CHECK(options.steps_per_launch >= 1, "StepGraph: steps_per_launch is ", options.steps_per_launch,
               ", at least 1 is needed");
  recorder_ = options.enabled ? runtime_.recorder() : nullptr;
  if (recorder_ == nullptr) return;
  // What the backend keeps for itself must not be made inside a step, or it would keep the memory of the graphs.
  backend_for(device);
  clear();
}

StepGraph::~StepGraph() { forget(); }

void StepGraph::forget() noexcept {
  entries_.clear();
  if (memory_ == nullptr) return;
  memory_->set_keep_segments(false);
  memory_->release_cached();
}

std::int64_t StepGraph::run(const StepKey& key, const std::function<void()>& step, std::int64_t wanted) {
  HEDDLE_CHECK(step != nullptr, "StepGraph: the step is empty");
  HEDDLE_CHECK(wanted >= 1, "StepGraph: ", wanted, " steps are wanted, at least 1 is possible");
  const ProfileRange range(runtime_, "step");
  std::int64_t steps = 1;
  if (recorder_ == nullptr) {
    step();
    runs_ += steps;
    return steps;
  }
  const Stream stream = current_stream(runtime_.device());
  HEDDLE_CHECK(entries_.empty() || stream == stream_, "StepGraph: a run on another stream than the ones before");
  stream_ = stream;
  if (Entry* const entry = find(key); entry == nullptr) {
    // Libraries choose their plans and load their kernels now, and the memory that the step needs is found.
    const AllocatorGuard guard(memory_);
    step();
    entries_.push_front({.key = key, .one = nullptr, .many = nullptr});
    if (entries_.size() > options_.max_keys) entries_.pop_back();
  } else {
    const bool many = options_.steps_per_launch > 1 && wanted >= options_.steps_per_launch;
    if (many) steps = options_.steps_per_launch;
    std::shared_ptr<ExecutableGraph>& graph = many ? entry->many : entry->one;
    if (graph == nullptr) graph = record(step, steps);
    graph->launch(stream);
  }
  runs_ += steps;
  return steps;
}

StepGraph::Entry* StepGraph::find(const StepKey& key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return &entries_.front();
}

std::optional<GraphSize> StepGraph::recorded_size(const StepKey& key) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (found == entries_.end()) return std::nullopt;
  if (found->one != nullptr) return found->one->size();
  if (found->many == nullptr) return std::nullopt;
  const GraphSize all = found->many->size();
  const std::int64_t steps = options_.steps_per_launch;
  return GraphSize{.kernels = all.kernels / steps,
                   .copies = all.copies / steps,
                   .fills = all.fills / steps,
                   .others = all.others / steps};
}

std::shared_ptr<ExecutableGraph> StepGraph::record(const std::function<void()>& step, std::int64_t steps) {
  recorder_->begin(stream_);
  try {
    const AllocatorGuard guard(memory_);
    for (std::int64_t i = 0; i < steps; ++i) step();
  } catch (...) {
    recorder_->abandon(stream_);
    throw;
  }
  try {
    return recorder_->end(stream_);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const DeviceError& error) {
    throw DeviceError(
        join_text("StepGraph: the step cannot be recorded: it did something that is not possible in a "
                  "recording, like waiting for the device; ",
                  error.what()));
  }
}

void StepGraph::clear() {
  forget();
  if (recorder_ == nullptr) return;
  // Fresh memory, since tensors that a step made may still be held.
  memory_ = std::make_shared<CachingAllocator>(runtime_, allocator_ptr_for(runtime_.device()));
  memory_->set_keep_segments(true);
}

AllocatorStats StepGraph::memory() const { return memory_ == nullptr ? AllocatorStats{} : memory_->stats(); }

}  // namespace heddle::step
